"""The decoder layers of a Hugging Face ``config.json`` as layer IR.

``main`` takes ``hidden_states`` [batch, seq, H], a prompt from its first token on, and gives what comes out of the
layers that are built: one of each different kind (dense and MoE, full and windowed), in the model's order, unless the
file says otherwise in ``moec_layers`` ("all", or a list of layer numbers). Attention is causal, with no padding; cos
and sin are computed inside. A kind of layer is one function, called once a layer, with the weights as its arguments.

Weights have no data and are named as in the state dict, ``model.layers.<n>.<module>.weight``. Those of experts are
stacked under the names of transformers 5, ``experts.gate_up_proj`` [E, 2 I, H] (gate above up; GPT-OSS: in alternating
rows) and ``experts.down_proj`` [E, H, I]; a shared expert's gate and up stand one above the other in
``shared_experts.gate_up_proj.weight``.

What the fields mean stands in ``fields.FIELDS``, what changes nothing in ``fields.IGNORED``, what a family's code does
unsaid in ``families.FAMILIES``. Any other field is refused by name. Embedding, final norm, output head and multi-token
prediction layers are not built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moec.diagnostics import Problem
from moec.frontend.hf.build import build_module
from moec.frontend.hf.decoder import read_model
from moec.frontend.hf.values import Values, read_values
from moec.ir.graph import Module

__all__ = ["Loaded", "load_config", "parse_config", "read_config", "read_config_text"]

TUNE = {"batch": 1, "seq": 4096}
"""The sizes to tune for where none are given."""


@dataclass(frozen=True)
class Loaded:
    """What was read: the module, the sizes to tune for, and what its user should know."""

    module: Module
    tune: dict[str, int]
    warnings: Sequence[Problem]


def load_config(path: Path | str) -> Module:
    """The decoder layers of a ``config.json``; Refusal as ``read_config``."""
    return read_config(path).module


def parse_config(text: str, file: str = "config.json") -> Module:
    """The decoder layers of the text of a ``config.json``; Refusal as ``read_config_text``."""
    return read_config_text(text, file).module


def read_config(path: Path | str) -> Loaded:
    """The decoder layers of a ``config.json``; Refusal as ``read_config_text``, or where it cannot be read."""
    return _loaded(read_values(Path(path)))


def read_config_text(text: str, file: str = "config.json") -> Loaded:
    """The decoder layers that the text describes; Refusal with every field that is unknown, missing or contradicted."""
    return _loaded(Values(text, file))


def _loaded(values: Values) -> Loaded:
    model = read_model(values)
    module = build_module(model, values.family.names, values.file)
    return Loaded(module, TUNE | {"seq": min(TUNE["seq"], model.longest)}, tuple(values.warnings))
