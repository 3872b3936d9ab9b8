"""The README against the project: its commands, its code, its folders and the test command that CI runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import numpy as np
import pytest
from command import ROOT, moec

from tests.support.train import Case, check_case

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)
PYTHON = [text for kind, text in BLOCKS if kind == "python"]
COMMANDS = [
    part.strip()
    for kind, text in BLOCKS
    if kind == "sh"
    for line in text.splitlines()
    for part in re.split(r"&&|;", line.split("  #")[0])
    if part.strip().startswith("moec ")
]


def block(part: str) -> str:
    """The one Python block that contains ``part``."""
    (found,) = [text for text in PYTHON if part in text]
    return found


def test_ci_runs_the_test_command() -> None:
    (command,) = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines() if "pytest" in line]
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_commands_and_options_exist(command: str) -> None:
    words = shlex.split(command)
    shown = moec(words[1], "--help")
    assert shown.returncode == 0, command
    for option in (w for w in words if w.startswith("-")):
        assert option in shown.stdout, f"{command}: no {option}"
    for file in (w for w in words if w.startswith("examples/")):
        assert (ROOT / file).is_file()


def test_folders_and_files_exist() -> None:
    named = re.findall(r"`((?:moec|passes|codegen|targets|examples|benchmarks|tests)/[\w./]*)`", README)
    assert len(named) > 10
    for path in named:
        assert (ROOT / path).exists(), path


@pytest.fixture
def registries() -> Iterator[None]:
    """Take back what a block declares."""
    from moec.ops.registry import OPS
    from moec.passes.base import PASSES, known_passes

    known_passes()
    ops, passes = dict(OPS), dict(PASSES)
    yield
    OPS.clear()
    OPS.update(ops)
    PASSES.clear()
    PASSES.update(passes)


def test_the_op_runs(registries: None) -> None:
    from moec.ops.registry import OPS, op

    exec(block("ReluSquared"), {"op": op, "np": np})
    ref = OPS["relu_squared"].ref
    np.testing.assert_array_equal(ref(np.float32([-2, 3])), [0, 9])
    check_case(Case("relu_squared", [np.array([[0.5, -1.0], [2.0, 0.1]])]))


def test_the_rule_is_a_rule() -> None:
    from moec.rewrite.rule import Rule, miss, rule

    names: dict[str, object] = {"rule": rule, "miss": miss}
    exec(block("double-neg"), names)
    assert isinstance(names["double_neg"], Rule)


def test_the_pass_is_short_and_runs(registries: None, capsys: pytest.CaptureFixture[str]) -> None:
    from moec.driver import load
    from moec.passes.base import PassManager

    code = block("CountNodes")
    assert len([line for line in code.splitlines() if line.strip()]) < 15
    exec(compile(code, "README.md", "exec", dont_inherit=True), {"__name__": __name__})
    PassManager.parse("count-nodes{limit=5}").run(load(ROOT / "examples" / "tiny_moe.moe"))
    assert capsys.readouterr().out.split()[1] == "5"


def test_the_excerpt_shows_the_kernels_of_a_real_run() -> None:
    """The table is copied from a run of the command above it; its kernels, cores and sizes must still be those."""
    from moec.driver import compile

    command = next(c for c in COMMANDS if c.startswith("moec compile examples/"))
    done = compile(ROOT / shlex.split(command)[2])
    (excerpt,) = [text for kind, text in BLOCKS if not kind and "bound by" in text]
    rows = [line.split() for line in excerpt.splitlines()]
    first = [r[:3] for r in rows].index(["kernel", "core", "blocks"])
    last = [r[:1] for r in rows].index(["total"])
    shown = [(r[0], r[1], int(r[2])) for r in rows[first + 1 : last]]
    assert done.schedule is not None
    assert shown == [(k.kernel, k.core, k.blocks) for k in done.schedule.kernels]
