"""Witness inputs: numbers on which a module is evaluated before and after a pass, to see that it kept its meaning.

Before and after are both evaluated in the layer's own dtypes, or both in fp64 where it rounds to whole numbers on the
way, as dynamic quantisation does: there a sum in another order may fall on the other side of a step, and what is then
off by a whole step says nothing about the pass. In fp64 that chance is gone. Stored outputs are always compared in the
layer's own dtypes.

A training graph has inputs and outputs that the import has not: incoming gradients, made up like inputs, and gradients,
which are compared with those of the joint graph as it was first made.

Stored inputs are used where ``NAME.npz`` lies beside ``NAME.onnx``. Else one case is made up: small sizes, numbers
drawn by each name's own seed, so that the same layer always gets the same ones.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from moec import eval as reference
from moec.arrays import (
    TOLERANCE,
    Arrays,
    Case,
    Difference,
    cases,
    compare,
    expected_outputs,
    match_outputs,
    read_npz,
    record_of,
    recorded_tolerance,
    require_agreement,
)
from moec.diagnostics import Problem, Refusal
from moec.eval.ranks import output_types, whole_shape
from moec.inputs import divide, open_weights
from moec.ir.graph import Module
from moec.ir.symbol import evaluate
from moec.ir.types import DType
from moec.sizes import symbol_bounds

SMALL = (3, 5, 2, 7, 4, 6)
"""Sizes of symbols in order of appearance, as far as their bounds allow: different, so that a mix-up of two dims
shows.
"""

STEPS = ("round",)
"""Ops whose result jumps by a whole step where their operand moves by its last bit, used on what is computed."""

LARGEST_BYTES = 2 << 30
"""A layer with more bytes of weights than this is not evaluated on witness inputs."""


@dataclass(frozen=True)
class Check:
    """One comparison: what ``stage`` gave for a case of inputs, against what was ``expected`` (``import`` or a file's
    name).
    """

    stage: str
    case: str
    expected: str
    differences: tuple[Difference, ...]


@dataclass
class Witness:
    """The cases of one input file, the outputs of the module as imported, and every check made so far."""

    cases: list[Case]
    weights: Arrays
    baseline: list[Arrays] = field(default_factory=list)
    stored: list[Arrays] = field(default_factory=list)
    stored_name: str = ""
    tolerance: float | None = None
    rounding: float = 0.0
    """What float outputs may be off from the import's: the tolerance of the narrowest float that the layer computes
    with.
    """
    fp64: bool = False
    """Whether before and after are compared in fp64: a step of rounding would turn last bits into whole steps."""
    checks: list[Check] = field(default_factory=list)

    @classmethod
    def of(cls, module: Module, source: Path | None) -> Witness:
        """The witness of an imported module; evaluates it once a case. Refusal where its weights are too large to."""
        total = sum(n.attrs["dtype"].bytes * _count(n.attrs["shape"]) for n in module.nodes() if n.op == "weight")
        if total > LARGEST_BYTES:
            todo = (
                f"leave out --check, or check a smaller copy of the layer (up to {LARGEST_BYTES >> 20} MiB of weights)"
            )
            raise Refusal(f"--check would evaluate a layer with {total / 2**30:.1f} GiB of weights", todo=todo)
        weights = {name: _weight(name, shape) for name, shape in open_weights(module).items()}
        made = cls([], weights)
        beside = source.with_suffix(".npz") if source is not None else None
        if beside is not None and beside.is_file():
            made._take(module, beside)
        if not made.cases:
            made.cases.append(_made_up(module))
            made.stored.append({})
        try:
            outputs = [made._run(module, case) for case in made.cases]
            made.fp64 = any(n.op in STEPS for n in module.nodes())
            made.baseline = [made._run(module, case, True) for case in made.cases] if made.fp64 else outputs
        except Refusal as refusal:
            raise Refusal([*refusal.problems, Problem(_UNFIT)]) if not made.stored_name else refusal from None
        made.rounding = _rounding(module)
        made._compare_stored("import", outputs, _types(module))
        return made

    def _take(self, module: Module, file: Path) -> None:
        arrays, record = read_npz(file), record_of(file)
        for case in cases(arrays, arrays):
            if record and not expected_outputs(case, record):
                continue
            given, weights = divide(module, case.inputs, {}, file)
            self.weights |= weights
            self.cases.append(Case(case.name or "1", given))
            self.stored.append(match_outputs(module.main.output_names, expected_outputs(case, record), file))
        self.stored_name = file.name
        self.tolerance = recorded_tolerance(record)

    def _run(self, module: Module, case: Case, fp64: bool = False) -> Arrays:
        return reference.run(module, case.inputs, self.weights, fp64=fp64)

    def __call__(self, module: Module) -> Mapping[str, np.ndarray]:
        """The module's outputs on the first case, by name."""
        return self._run(module, self.cases[0])

    def check(self, module: Module, stage: str) -> None:
        """Evaluate the module on every case; CheckFailed where an output left the tolerance of the import's or the
        stored one's.
        """
        for case in self.cases:
            _extend(case, module)
        outputs = [self._run(module, case) for case in self.cases]
        compared = [self._run(module, case, True) for case in self.cases] if self.fp64 else outputs
        types = _types(module)
        rounding = max(self.rounding, _rounding(module))
        for before, after in zip(self.baseline, compared, strict=True):
            before.update((n, a) for n, a in after.items() if n not in before)
        for case, before, after in zip(self.cases, self.baseline, compared, strict=True):
            wide = {n: a for n, a in before.items() if types[n].is_float}
            rest = {n: a for n, a in before.items() if n not in wide}
            rows = (*compare(after, wide, types, rounding), *compare(after, rest, types))
            self._record(Check(stage, case.name, "import", rows))
        self._compare_stored(stage, outputs, types, rounding if rounding > self.rounding else 0.0)

    def _compare_stored(
        self, stage: str, outputs: list[Arrays], types: Mapping[str, DType], rounding: float = 0.0
    ) -> None:
        """``rounding``: the tolerance of a narrower float that a pass made the layer compute with."""
        tolerance = max(self.tolerance or 0.0, rounding) or self.tolerance
        for case, stored, actual in zip(self.cases, self.stored, outputs, strict=True):
            if stored:
                self._record(Check(stage, case.name, self.stored_name, compare(actual, stored, types, tolerance)))

    def _record(self, check: Check) -> None:
        self.checks.append(check)
        require_agreement(check.differences, f"{check.stage} against {check.expected}", check.case)


_UNFIT = (
    "--check evaluates on inputs that were made up, which this layer does not take; "
    "give it stored ones in a file NAME.npz beside the input"
)


def _rounding(module: Module) -> float:
    floats = {v.type.dtype for n in module.nodes() for v in n.results if v.type.dtype.is_float}
    return max((TOLERANCE.get(d.name, max(TOLERANCE.values())) for d in floats), default=0.0)


def _types(module: Module) -> dict[str, DType]:
    return output_types(module, {})


def _count(shape: tuple[int, ...]) -> int:
    return math.prod(int(d) for d in shape)


def _rng(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def _weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers over the square root of the last dim, so that sums over it stay near 1."""
    scale = 1.0 / math.sqrt(max(1, shape[-1])) if len(shape) > 1 else 1.0
    return (_rng(name).standard_normal(shape, np.float32) * np.float32(scale)).astype(np.float32)


def _made_up(module: Module) -> Case:
    sizes: dict[str, int] = {}
    for i, (name, (low, high)) in enumerate(symbol_bounds(module).items()):
        sizes[name] = min(max(SMALL[i % len(SMALL)], low), high)
    inputs: Arrays = {}
    for value in module.main.inputs:
        if value.type.shape is None:
            raise Refusal(
                f"--check cannot make up input '{value.name}': its rank is unknown", todo="give the input a shape"
            )
        shape = tuple(evaluate(d, sizes) for d in whole_shape(value.name, value.type.shape, module))
        inputs[value.name] = _numbers(value.name, value.type.dtype, shape)
    return Case("made up", inputs)


def _extend(case: Case, module: Module) -> None:
    """Give a case the inputs that the module has gained."""
    inputs = {v.name: v for v in module.main.inputs}
    gained = [v for n, v in inputs.items() if not any(n == k.partition(".")[2] or n == k for k in case.inputs)]
    sizes: dict[str, int] = {}
    for name, v in inputs.items() if gained else ():
        if name in case.inputs and v.type.shape is not None:
            shape = whole_shape(name, v.type.shape, module)
            reference.bind(v.type.with_shape(shape), np.shape(case.inputs[name]), sizes)
    for v in gained:
        try:
            made = tuple(evaluate(d, sizes) for d in v.type.dims)
        except KeyError as unknown:
            raise Refusal(f"--check cannot make up input '{v.name}': size {unknown} is not known") from None
        case.inputs[v.name] = _numbers(v.name, v.type.dtype, made)


def _numbers(name: str, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.is_float:
        return _rng(name).standard_normal(shape, np.float32).astype(dtype.carrier)
    return _rng(name).integers(0, 2, shape).astype(dtype.carrier)
