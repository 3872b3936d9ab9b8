"""Reading what a user hands in: which front end takes a file, by suffix and content."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from moec import store
from moec.diagnostics import CheckFailed, Problem, Refusal, Where
from moec.ir.graph import Module
from moec.ir.symbol import Dim
from moec.ir.text import load_module
from moec.ops.calls import call_problems
from moec.ops.limits import size_problems
from moec.ops.verify import verify
from moec.sizes import complete_sizes, given_sizes

KINDS = {
    ".moe": "a layer in moec's language",
    ".onnx": "an ONNX model",
    ".json": "a Hugging Face config.json",
    ".mir": "layer IR as moec prints it",
}

LIMITS = {".moe": 1 << 32, ".onnx": 1 << 31, ".json": 1 << 24, ".mir": 1 << 30}
"""Bytes of a file that is still read: a protobuf's own limit, and what leaves room for its tree in memory. The language
has its own.
"""


def kind_of(path: Path) -> str:
    """The kind (a key of ``KINDS``) of a file; Refusal where it cannot be read or is of no known kind."""
    try:
        size = path.stat().st_size
        if not path.is_file() and not path.is_dir():
            raise OSError("it is no regular file")
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Refusal(f"cannot read the input: {reason}", Where(str(path)), "give a readable file") from None
    kind = _kind(path, head)
    if size > LIMITS[kind]:
        raise Refusal(f"{KINDS[kind]} of {size:,} bytes", Where(str(path)), f"at most {LIMITS[kind]:,} are read")
    return kind


def _kind(path: Path, head: bytes) -> str:
    if path.suffix in KINDS:
        return path.suffix
    first = next((line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#")), b"").lstrip()
    if first.startswith((b"symbol ", b"func ")) and b":" in head:
        return ".mir"
    if first.startswith(b"{") and (b'"model_type"' in head or b'"architectures"' in head):
        return ".json"
    if head[:1] == b"\x08" and b"\x00" not in head[:2]:
        return ".onnx"
    known = "; ".join(f"{suffix} ({what})" for suffix, what in KINDS.items())
    raise Refusal("not an input that moec knows", Where(str(path)), f"inputs: {known}")


@dataclass(frozen=True)
class Loaded:
    """A layer that was read: its module, the sizes that the file itself says to tune for, what looks like a mistake in
    it, and the sizes that it names besides its symbols, made of them.
    """

    module: Module
    tune: Mapping[str, int]
    warnings: Sequence[Problem]
    derived: Mapping[str, Dim] = field(default_factory=dict)

    def given(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """``sizes`` that a user gives, as sizes of symbols. Refusal where one is none of the layer's."""
        return given_sizes(self.module, self.derived, sizes)

    def sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """A size for every symbol: the user's, else the file's, else an assumed one. Refusal as ``given``."""
        return complete_sizes(self.module, {**self.tune, **self.given(sizes)})


def read(path: Path) -> Loaded:
    """The layer of a ``.moe``, ``.onnx``, ``.mir`` or ``config.json`` file, verified. Refusal lists everything that is
    wrong with it.
    """
    kind = kind_of(path)
    if kind == ".moe":
        found = importlib.import_module("moec.frontend.dsl").read_moe(path)
        loaded = Loaded(found.module, found.tune, found.warnings, found.derived)
    elif kind == ".onnx":
        imported = importlib.import_module("moec.frontend.onnx").read_onnx(path)
        loaded = Loaded(imported.module, {}, imported.warnings)
    elif kind == ".json":
        built = importlib.import_module("moec.frontend.hf").read_config(path)
        loaded = Loaded(built.module, built.tune, built.warnings)
    else:
        loaded = Loaded(load_module(path, store.load(path.parent)), {}, ())
    if "main" not in loaded.module.functions:
        raise Refusal("no function 'main'", Where(str(path)), "name the function that a run starts with 'main'")
    problems = call_problems(loaded.module) or size_problems(loaded.module)
    if problems:
        raise Refusal([replace(p, where=replace(p.where, file=str(path))) for p in problems])
    try:
        verify(loaded.module)
    except CheckFailed as failure:
        if kind == ".mir":
            raise Refusal(failure.problems) from None
        raise
    return loaded


def load(path: str | Path) -> Module:
    """The module of a ``.moe``, ``.onnx``, ``.mir`` or ``config.json`` file, as ``read`` gives it."""
    return read(Path(path)).module
