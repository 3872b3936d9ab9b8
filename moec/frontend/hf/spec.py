"""What a decoder layer is: its parts with every size and choice. Two layers of the same spec are the same function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moec.frontend.hf.rope import Rope
from moec.ir.types import DType


@dataclass(frozen=True)
class Latent:
    """The latent ranks of MLA (DeepSeek-V2, arXiv 2405.04434): ``q_rank`` is None where queries have none; a query or
    key head has ``nope`` elements without position, then the rotated ones. ``eps`` is that of the latents' norms.
    """

    q_rank: int | None
    kv_rank: int
    nope: int
    eps: float


@dataclass(frozen=True)
class Attention:
    """Causal self-attention: ``head`` is the width of a query and key head, ``value`` that of a value head.

    ``window`` keys are seen, None for all. ``qk_norm`` is ``none``, ``head`` or ``width``. ``scale`` multiplies scores.
    """

    heads: int
    kv_heads: int
    head: int
    value: int
    bias: bool
    output_bias: bool
    qk_norm: str
    sinks: bool
    scale: float
    window: int | None
    rope: Rope
    latent: Latent | None


@dataclass(frozen=True)
class Dense:
    """A gated MLP: down(act(gate x) * up x), ``inner`` wide."""

    inner: int
    activation: str


@dataclass(frozen=True)
class Moe:
    """An MoE block. ``attrs`` are those of op ``moe``, as sorted pairs; ``shared`` is the shared expert's inner width,
    0 for none.
    """

    experts: int
    inner: int
    attrs: tuple[tuple[str, Any], ...]
    score_bias: bool
    router_bias: bool
    expert_bias: bool
    shared: int
    shared_gate: bool

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.attrs)


@dataclass(frozen=True)
class Layer:
    """A decoder layer: x + norm?(attention(norm(x))), then the same with the MLP; outer norms if ``sandwich``."""

    attention: Attention
    mlp: Dense | Moe
    eps: float
    sandwich: bool
    residual: float


@dataclass(frozen=True)
class Model:
    """The decoder of a model: every layer in order, the numbers of those to build, and what holds for all of them."""

    hidden: int
    longest: int
    dtype: DType
    layers: tuple[Layer, ...]
    built: tuple[int, ...]
