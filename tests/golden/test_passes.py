"""What each pass makes of a small layer: text in, text out, one file a case under ``passes/<pass>/``.

A case file holds comments, a line ``# passes: a,b``, the input, the separator and the expected IR.
``--snapshot-update`` rewrites the expected part; a file without one fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_plugin import Golden

from moec.ir.text import parse_module, print_module
from moec.passes.base import PassManager

FOLDER = Path(__file__).parent / "passes"
CASES = sorted(FOLDER.glob("*/*.mir"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    golden = Golden(path, request.config.getoption("--snapshot-update"))
    header = next(line for line in golden.text.splitlines() if line.startswith("# passes: "))
    module = parse_module(golden.text, path.name)
    manager = PassManager.parse(header.removeprefix("# passes: "))
    steps = manager.run(module)
    golden(print_module(module))
    assert parse_module(print_module(module)).functions.keys() == module.functions.keys()
    if path.stem.startswith("not_"):
        assert not any(step.result.changed for step in steps), "a near-miss must not change"


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden_result_is_a_fixpoint(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head, _, expected = text.partition("==== expected\n")
    spec = next(line for line in head.splitlines() if line.startswith("# passes: ")).removeprefix("# passes: ")
    module = parse_module(expected, path.name)
    PassManager.parse(spec).run(module)
    assert print_module(module) == expected


def test_every_pass_has_a_golden_case() -> None:
    named = {p.parent.name for p in CASES}
    assert {"canonicalise", "fold", "cse", "dce", "expand-moe", "fuse-gating", "fuse-vector"} <= named
