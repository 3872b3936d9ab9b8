"""Running a layer on the inputs of a file and comparing what comes out with stored outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moec.arrays import Arrays, Case, Difference, cases, difference, match_outputs, read_npz, record_of, tolerance_for
from moec.diagnostics import CheckFailed, Problem, Refusal, Where
from moec.ir.types import DType

Run = Callable[[Arrays], Arrays]


@dataclass(frozen=True)
class Trial:
    """One case that ran: its outputs by name and, where outputs were expected, how far they are apart."""

    case: str
    outputs: Arrays
    differences: tuple[Difference, ...] = ()


def trials(
    run: Run, outputs: Mapping[str, DType], inputs: Path, expect: Path | None = None, tolerance: float | None = None
) -> list[Trial]:
    """Run every case of ``inputs``. ``outputs`` are the layer's outputs by name.

    ``tolerance`` is by default the one that ``index.json`` beside ``expect`` records, else the dtype's.
    Refusal where files do not fit the layer.
    """
    given = read_npz(inputs)
    stored = (given if expect == inputs else read_npz(expect)) if expect is not None else None
    record = record_of(expect) if expect is not None else {}
    found = cases(given, stored)
    if not found:
        raise Refusal("no inputs in the file", Where(str(inputs)), "name arrays in.<input> or <input>")
    if expect is not None and not any(c.outputs for c in found):
        raise Refusal("no expected outputs in the file", Where(str(expect)), "name arrays out.<number> or by output name")
    if tolerance is None and record:
        tolerance = _number(record.get("tolerance"))
    return [_trial(case, run, outputs, expect, record, tolerance) for case in found]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _trial(
    case: Case,
    run: Run,
    outputs: Mapping[str, DType],
    expect: Path | None,
    record: Mapping[str, object],
    tolerance: float | None,
) -> Trial:
    expected: Arrays = {}
    if expect is not None and case.outputs:
        key = str(record.get("expected_key", "out")).split(".")[0]
        stored = case.outputs.get(key) or next(iter(case.outputs.values()))
        expected = match_outputs(list(outputs), stored, expect)
    actual = run(case.inputs)
    rows = tuple(
        difference(name, actual[name], array, tolerance if tolerance is not None else tolerance_for(outputs[name]))
        for name, array in expected.items()
    )
    return Trial(case.name, actual, rows)


def require_agreement(done: list[Trial], what: str) -> None:
    """CheckFailed with every output that is further off than its tolerance."""
    problems = [
        Problem(
            f"{what}: output '{d.output}' is off by {d.absolute:.3g} (allowed {d.tolerance * max(1.0, d.scale):.3g})",
            Where(node=f"case {t.case or '1'}"),
        )
        for t in done
        for d in t.differences
        if not d.agrees
    ]
    if problems:
        raise CheckFailed(problems)
