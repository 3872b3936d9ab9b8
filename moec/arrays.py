"""Arrays that users hand in and out: ``.npz`` files with one or several input sizes, and how far two arrays are apart.

Keys: ``in.<input>`` with ``out.<n>`` (another runtime's: ``ort.<n>``) are one case, ``in2.<input>`` with
``out2.<n>`` and ``ort2.<n>`` a second one. Plain keys are inputs, or outputs by name where the file is the expected
one.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from moec.diagnostics import CheckFailed, Problem, Refusal, Where, suggest
from moec.eval import error_between
from moec.ir.types import BF16, DType

_KEY = re.compile(r"(in|out|ort)(\d{0,9})\.(.+)\Z")

TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 2e-2, "bf16": 7e-2}
"""Largest error by dtype that two evaluations of one layer may differ by, as a share of max(1, largest expected
magnitude); others: 0.
"""

MAX_EXPANSION, SMALL = 300, 1 << 20
"""How many times its packed size a member may have unpacked; a packed size below ``SMALL`` bytes counts as that."""

Arrays = dict[str, np.ndarray]


@dataclass
class Case:
    """One set of inputs by name and the outputs by name or number that are stored for it, by producer (``out``,
    ``ort``).
    """

    name: str
    inputs: Arrays = field(default_factory=dict)
    outputs: dict[str, Arrays] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """How far one output is from what was expected: largest absolute error, the same relative to ``scale``, the
    largest magnitude expected.
    """

    output: str
    absolute: float
    relative: float
    scale: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether the absolute error is within tolerance x max(1, scale)."""
        return self.absolute <= self.allowed

    @property
    def allowed(self) -> float:
        """The largest absolute error that still agrees."""
        return self.tolerance * max(1.0, self.scale)


def read_npz(path: Path) -> Arrays:
    """The arrays of a file by key; Refusal where it cannot be read."""
    todo = "give a file that numpy.savez wrote"
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")
        with path.open("rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise Refusal("one bare array, not an .npz file", Where(str(path)), todo)
        _check_members(path)
        with np.load(path, allow_pickle=False) as stored:
            return {key: _typed(key, stored[key], path) for key in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Refusal(f"cannot read arrays: {reason}", Where(str(path)), todo) from None


def _check_members(path: Path) -> None:
    """ValueError where a member is no array, hides another, or holds other than the bytes that its shape takes; so
    nothing is allocated that is not there.
    """
    with zipfile.ZipFile(path) as file:
        seen: set[str] = set()
        for member in file.infolist():
            name = member.filename
            if name in seen:
                raise ValueError(f"'{name}' is there twice")
            seen.add(name)
            if not name.endswith(".npy"):
                raise ValueError(f"'{name}' is no array")
            if member.flag_bits & 1:
                raise ValueError(f"'{name}' is encrypted")
            if member.file_size > MAX_EXPANSION * max(member.compress_size, SMALL):
                raise ValueError(f"'{name}' takes {member.compress_size} bytes and unpacks to {member.file_size}")
            with file.open(member) as array:
                shape, dtype = _header(array)
                wanted = math.prod(shape) * dtype.itemsize + array.tell()
            if not dtype.hasobject and wanted != member.file_size:
                raise ValueError(f"'{name}' has {member.file_size} bytes, its shape {list(shape)} takes {wanted}")


def _header(array: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of an ``.npy`` file, read up to its data."""
    version = np.lib.format.read_magic(array)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f".npy files of version {version[0]}.{version[1]} are not read")
    shape, _, dtype = read(array)
    if any(d < 0 for d in shape):
        raise ValueError(f"negative dimension in {list(shape)}")
    return shape, dtype


def _typed(key: str, array: np.ndarray, path: Path) -> np.ndarray:
    """``array`` with the dtype that ``numpy.savez`` drops of what numpy has no name for: two nameless bytes are a bf16
    (f16 has its name), others can be several dtypes.
    """
    if array.dtype.kind != "V":
        return array
    if array.dtype == np.dtype("V2"):
        return array.view(BF16.carrier)
    what = f"array '{key}' has elements of {array.dtype.itemsize} bytes without a dtype"
    raise Refusal(what, Where(str(path)), "convert it to float32 before numpy.savez")


def cases(inputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray] | None = None) -> list[Case]:
    """The cases that a file of inputs (and one of expected outputs) holds, in order of their number."""
    found: dict[str, Case] = {}
    for key, array in inputs.items():
        match = _KEY.match(key)
        if match is None:
            found.setdefault("", Case("")).inputs[key] = array
        elif match[1] == "in":
            found.setdefault(match[2], Case(match[2])).inputs[match[3]] = array
    for key, array in (expected or {}).items():
        match = _KEY.match(key)
        number, producer, name = (match[2], match[1], match[3]) if match else ("", "out", key)
        if producer != "in" and number in found:
            found[number].outputs.setdefault(producer, {})[name] = array
    return [found[k] for k in sorted(found, key=lambda k: int(k or 1))]


def record_of(path: Path) -> dict[str, object]:
    """What ``index.json`` beside an ``.npz`` file says of its checks (tolerance, expected key); empty where it says
    nothing.
    """
    index = path.parent / "index.json"
    if not index.is_file():
        return {}
    try:
        records = json.loads(index.read_text(encoding="utf-8"))
        return next((dict(r["checks"]) for r in records if r.get("name") == path.stem), {})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def match_outputs(names: Sequence[str], stored: Mapping[str, np.ndarray], path: Path) -> Arrays:
    """Stored outputs under the layer's output names; a stored number is a position. Refusal names what fits none."""
    result: Arrays = {}
    for key, array in stored.items():
        if key in names:
            result[key] = array
        elif key.isdigit() and int(key) < len(names):
            result[names[int(key)]] = array
        else:
            hint = suggest(key, names) or f"outputs: {', '.join(names)}"
            raise Refusal(f"expected output '{key}' is no output of the layer", Where(str(path)), hint)
    return result


def difference(name: str, actual: np.ndarray, expected: np.ndarray, tolerance: float) -> Difference:
    """Compare in f64. Equal NaN and equal infinities agree; different shapes differ by infinity."""
    magnitudes = np.abs(np.asarray(expected).astype(np.float64))
    scale = float(np.max(magnitudes[np.isfinite(magnitudes)], initial=0.0))
    if actual.shape != expected.shape:
        label = f"{name} (shape {list(actual.shape)}, expected {list(expected.shape)})"
        return Difference(label, np.inf, np.inf, scale, tolerance)
    return Difference(name, *error_between(actual, expected), scale, tolerance)


def expected_outputs(case: Case, record: Mapping[str, object]) -> Arrays:
    """The stored outputs that a case must give: torch's, else any. Where there is a record, those of the producer that
    it calls right, and none where that one has none (the exporter baked the first size into the file, say).
    """
    if not record:
        return case.outputs.get("out") or next(iter(case.outputs.values()), {})
    first_only = str(record.get("verdict", "")).startswith("match-first-input-only")
    producer = "ort" if first_only and case.name else str(record.get("expected_key", "out")).split(".")[0]
    return case.outputs.get(producer, {})


def recorded_tolerance(record: Mapping[str, object]) -> float | None:
    """The tolerance that ``record`` states, if it does."""
    tolerance = record.get("tolerance")
    return float(tolerance) if isinstance(tolerance, int | float) else None


def compare(
    actual: Arrays, expected: Arrays, types: Mapping[str, DType], tolerance: float | None = None
) -> tuple[Difference, ...]:
    """How far each expected output is off; ``tolerance`` is by default that of the output's dtype (integers must be
    equal).
    """
    return tuple(
        difference(n, actual[n], e, TOLERANCE.get(types[n].name, 0.0) if tolerance is None else tolerance)
        for n, e in expected.items()
    )


def require_agreement(differences: Iterable[Difference], what: str, case: str) -> None:
    """CheckFailed with every output that is further off than allowed; ``what`` was compared, on ``case``."""
    problems = [
        Problem(
            f"{what}: output '{d.output}' is off by {d.absolute:.3g} (allowed {d.allowed:.3g})",
            Where(node=f"case {case}"),
        )
        for d in differences
        if not d.agrees
    ]
    if problems:
        raise CheckFailed(problems)
