"""Every op with every element type that it accepts: a kernel, or a refusal that names what is missing and where.

``op_matrix.txt`` holds the answer for each: what can no longer be lowered is a change of that file.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from op_instances import ELSEWHERE, INSTANCES, Instance, X, lowered, module_of

from moec.diagnostics import Refusal
from moec.ir.types import DTYPES, DType
from moec.ops.registry import OPS
from moec.targets.ascend.target import load_target

GOLDEN = Path(__file__).with_name("op_matrix.txt")
SAMPLED = ("f32", "i64", "u8", "bool")


def _varies(instance: Instance) -> bool:
    """Whether the type that varies stands in it."""
    return any(o is not None and o[0] == X for o in instance[0]) or X in instance[1].values()


def _answer(name: str, instance: Instance, dtype: DType, folder: Path | None = None) -> str | None:
    """``kernel`` or the refusal; None where the op does not take the type. Anything else that is raised is a bug."""
    module = module_of(name, instance, dtype)
    if module is None:
        return None
    try:
        program = lowered(module)
    except Refusal as refusal:
        for problem in refusal.problems:
            assert problem.what and problem.where.node, f"{name} of {dtype}: {problem}"
            assert name in str(problem) or dtype.name in str(problem), f"{name} of {dtype}: {problem}"
        return str(refusal)
    if folder is not None:
        load_target("ascend910b1").emit(program, folder)
    return "kernel"


def _row(name: str, dtypes: list[str], folder: Path | None = None) -> str:
    """The types of which all forms, and of which some, have a kernel."""
    found: dict[str, list[str]] = defaultdict(list)
    for dtype in dtypes:
        answers = [_answer(name, i, DTYPES[dtype], folder) for i in INSTANCES[name] if _varies(i) or dtype == "f32"]
        given = [a for a in answers if a is not None]
        if given:
            made = sum(a == "kernel" for a in given)
            found["kernel" if made == len(given) else "some" if made else "refused"].append(dtype)
    parts = [f"{what} {' '.join(found[what])}" for what in ("kernel", "some", "refused") if found[what]]
    return f"{name}: " + "; ".join(parts)


def test_every_op_has_a_row_or_a_reason() -> None:
    assert set(OPS) == set(INSTANCES) | set(ELSEWHERE)
    assert not set(INSTANCES) & set(ELSEWHERE)


def test_a_sample_of_the_matrix() -> None:
    """A few types of each op; what the file says of them holds."""
    golden = dict(line.split(": ", 1) for line in GOLDEN.read_text().splitlines())
    for name in list(INSTANCES)[::3]:
        for dtype in SAMPLED:
            said = [part.split()[0] for part in golden[name].split("; ") if dtype in part.split()[1:]]
            now = _row(name, [dtype]).split(": ")[1].split(" ")[0]
            assert [now] == said or (not said and not now), f"{name} of {dtype}"


@pytest.mark.slow
def test_the_whole_matrix(tmp_path: Path) -> None:
    """All of it; what has a kernel is written as a project too."""
    rows = [_row(name, list(DTYPES), tmp_path / "project") for name in INSTANCES]
    assert rows == GOLDEN.read_text().splitlines()
