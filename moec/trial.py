"""Running a layer on the inputs of a file and comparing what comes out with stored outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from moec.arrays import (
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
)
from moec.diagnostics import Refusal, Where
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

    ``tolerance`` is by default the one that ``index.json`` beside ``expect`` records, else the dtype's. Refusal
    where files do not fit the layer.
    """
    given = read_npz(inputs)
    stored = (given if expect == inputs else read_npz(expect)) if expect is not None else None
    record = record_of(expect) if expect is not None else {}
    found = cases(given, stored)
    if record:
        wrong = [c.name for c in found if not expected_outputs(c, record)]
        for name in wrong:
            print(f"moec: case {name or '1'} is left out: the file is known to be wrong at this size", file=sys.stderr)
        found = [c for c in found if c.name not in wrong]
    if not found:
        raise Refusal("no inputs in the file", Where(str(inputs)), "name arrays in.<input> or <input>")
    if expect is not None and not any(c.outputs for c in found):
        raise Refusal(
            "no expected outputs in the file", Where(str(expect)), "name arrays out.<number> or by output name"
        )
    if tolerance is None:
        tolerance = recorded_tolerance(record)
    return [_trial(case, run, outputs, expect, record, tolerance) for case in found]


def against(
    done: Sequence[Trial], wanted: Sequence[Trial], outputs: Mapping[str, DType], tolerance: float | None = None
) -> list[Trial]:
    """``done`` with how far each case is from the same case of ``wanted``, too."""
    return [
        replace(t, differences=(*t.differences, *compare(t.outputs, w.outputs, outputs, tolerance)))
        for t, w in zip(done, wanted, strict=True)
    ]


def _trial(
    case: Case,
    run: Run,
    outputs: Mapping[str, DType],
    expect: Path | None,
    record: Mapping[str, object],
    tolerance: float | None,
) -> Trial:
    expected: Arrays = {}
    if expect is not None:
        expected = match_outputs(list(outputs), expected_outputs(case, record), expect)
    actual = run(case.inputs)
    return Trial(case.name or "1", actual, compare(actual, expected, outputs, tolerance))
