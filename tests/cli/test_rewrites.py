"""``moec explain``, ``bisect`` and ``repro``: the wrong application among right ones is found and replayed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from moec import driver, load
from moec.bisect import bisect
from moec.diagnostics import CheckFailed, Refusal
from moec.ir.text import parse_module
from moec.passes.base import PASSES, Context, Pass, Result, parse_passes, register_pass
from moec.passes.rule_pass import RulePass
from moec.repro import replay, write
from moec.rewrite.rule import RULES, Rule, rule
from moec.rewrite.term import T, Term, require
from tests.support.command import moec

CHAIN = "symbol T in [1, 64]\n\nfunc main(%x: f32[T, 16]) -> (y: f32[T, 16]) {{\n{body}  return %{last}\n}}\n"


@rule("right-double-neg", exactness="exact", why="signs cancel", cases=["x: [3, 5]"])
def right(x: Term) -> Iterator[Any]:
    yield T.neg(T.neg(x))
    yield x


@rule("wrong-square", exactness="exact", why="it is wrong on purpose", cases=["x: [3, 5]"])
def wrong(x: Term) -> Iterator[Any]:
    yield T.tanh(x) * T.tanh(x)
    require(x.rank == 2, "rank is not 2", x)
    yield T.tanh(x)


del RULES["right-double-neg"], RULES["wrong-square"]  # the law tests are of rules that are meant to hold


@register_pass
class Mixed(RulePass):
    """Right and wrong rules together."""

    name: ClassVar[str] = "test-mixed"

    @classmethod
    def rules(cls) -> list[Rule]:
        return [right, wrong]


@register_pass
class Doubling(Pass):
    """Doubles what the first node reads: wrong, and no rule."""

    name: ClassVar[str] = "test-doubling"

    def run(self, module: Any, context: Context) -> Result:
        from moec.ops.build import Builder

        result = Result()
        node = next(n for n in module.main if n.op == "neg")
        node.set_operand(0, Builder(module.main, node).add(node.operands[0], node.operands[0]))
        result.apply("doubling", node.origin, module.main)
        return result


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two passes are known during these tests only."""
    for each in (Mixed, Doubling):
        monkeypatch.setitem(PASSES, each.name, each)


for _each in (Mixed, Doubling):
    PASSES.pop(_each.name)


def chain(*parts: str) -> str:
    """A layer of ``neg`` pairs ("n") and squared tanhs ("t"), one after the other."""
    body, last = "", "x"
    for i, part in enumerate(parts):
        op = "neg" if part == "n" else "tanh"
        body += f"  %a{i} = {op}(%{last}) : f32[T, 16]\n"
        second = f"neg(%a{i})" if part == "n" else f"mul(%a{i}, %a{i})"
        body += f"  %b{i} = {second} : f32[T, 16]\n"
        last = f"b{i}"
    return CHAIN.format(body=body, last=last)


@pytest.mark.parametrize(("layout", "index"), [("nnnt", 4), ("tnnn", 1), ("nntnnn", 3), ("t", 1)])
def test_bisect_finds_the_one_wrong_application(layout: str, index: int) -> None:
    found = bisect(parse_module(chain(*layout)), parse_passes("cse,test-mixed,dce"))
    assert found is not None
    assert (found.number, found.spec, found.index, found.total) == (2, "test-mixed", index, len(layout))
    assert [a.rule for a in found.applications] == ["wrong-square"]


def test_bisect_blames_a_pass_without_rules_as_a_whole() -> None:
    found = bisect(parse_module(chain("n", "n")), parse_passes("test-doubling"))
    assert found is not None
    assert found.index is None
    assert [a.rule for a in found.applications] == ["doubling"]


def test_bisect_says_so_where_nothing_is_wrong() -> None:
    assert bisect(parse_module(chain("n", "n")), parse_passes("test-mixed,cse")) is None


def test_a_reproducer_stands_alone_and_notices_when_the_failure_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bisect(parse_module(chain("n", "t", "n")), parse_passes("test-mixed"))
    assert found is not None
    file, again = tmp_path / "wrong.repro", tmp_path / "again.repro"
    write(found.failure, file)
    write(found.failure, again)
    assert file.read_bytes() == again.read_bytes()
    with pytest.raises(CheckFailed, match="still there"):
        replay(file)
    monkeypatch.setattr(Mixed, "rules", classmethod(lambda cls: [right]))
    replay(file)


OPEN = """
dim T in [1, 64]
input x: f32[T, 16]
weight w: f32[16, 16],
       v: f32[16, 16]
output y = tanh(x @ w.T) * tanh(x @ w.T), z = -(-(tanh(x @ v.T) * tanh(x @ v.T)))
"""
"""A layer of weights without numbers of their own, where two outputs go wrong."""


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("steps", ["cse,test-mixed", "cse,autodiff,test-mixed"])
def test_a_reproducer_holds_the_weights_that_were_made_up_or_stored_beside(
    steps: str, stored: bool, tmp_path: Path
) -> None:
    layer, kept = tmp_path / "layer.moe", tmp_path / "bisect.repro"
    layer.write_text(OPEN, encoding="utf-8")
    if stored:
        rng = np.random.default_rng(0)
        sizes = {"in.x": (3, 16), "in.w": (16, 16), "in.v": (16, 16), "in2.x": (5, 16), "in2.w": (16, 16)}
        np.savez(
            tmp_path / "layer.npz",
            **{n: rng.standard_normal(s, np.float32) for n, s in (sizes | {"in2.v": (16, 16)}).items()},
        )
    found = bisect(load(layer), parse_passes(steps), layer)
    assert found is not None and found.index == 1 < found.total
    assert "layer.moe:6 " in str(found.applications[0].origin) and "\n" not in found.failure.reason
    write(found.failure, kept)
    with pytest.raises(CheckFailed, match="still there"):
        replay(kept)
    with pytest.raises(CheckFailed, match="moec repro"):
        driver.compile(layer, tmp_path / "out", passes=steps, check=True)
    with pytest.raises(CheckFailed, match="still there"):
        replay(tmp_path / "out.repro")


def test_a_failed_check_leaves_a_reproducer_and_says_how_to_replay_it(tmp_path: Path) -> None:
    layer = tmp_path / "layer.mir"
    layer.write_text(chain("n", "t"), encoding="utf-8")
    with pytest.raises(CheckFailed, match=r"moec repro .*out\.repro"):
        driver.compile(layer, tmp_path / "out", passes="test-mixed,dce", check=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["layer.mir", "out.repro"]
    with pytest.raises(CheckFailed, match="still there"):
        replay(tmp_path / "out.repro")


@pytest.mark.parametrize("damage", ["text", "extra", "empty", "limit"])
def test_what_is_no_reproducer_is_refused(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.repro"
    if damage == "text":
        file.write_text("not a zip")
    else:
        with zipfile.ZipFile(file, "w") as archive:
            if damage == "extra":
                archive.writestr("../escape", "x")
            if damage == "limit":
                archive.writestr("repro.json", json.dumps({"passes": "cse", "limit": "many"}))
    with pytest.raises(Refusal, match="no reproducer"):
        replay(file)
    assert not (tmp_path.parent / "escape").exists()


def test_explain_says_where_a_rule_fired_and_why_one_did_not(tmp_path: Path) -> None:
    layer = tmp_path / "layer.mir"
    body = "  %a = reduce_sum(%x) {axes = [0], keepdims = true} : f32[1, 16]\n"
    body += "  %b = sub(%x, %a) : f32[T, 16]\n  %c = neg(%b) : f32[T, 16]\n  %d = neg(%c) : f32[T, 16]\n"
    layer.write_text(CHAIN.format(body=body, last="d"), encoding="utf-8")
    shown = moec("explain", layer, "--passes", "canonicalise", "--json")
    entries = json.loads(shown.stdout)
    assert all(e["pass"] == "canonicalise" and (e["fired"] or e["near_misses"]) for e in entries)
    fired = {e["rule"] for e in entries if e["fired"]}
    assert fired == {"neg-neg"}


def test_explain_of_one_rule_describes_it(router: Path) -> None:
    shown = moec("explain", router, "--rule", "gating-topk-softmax")
    assert "gating-topk-softmax (" in shown.stdout and "=>" in shown.stdout


def test_explain_suggests_a_rule(router: Path) -> None:
    shown = moec("explain", router, "--rule", "gating-topk-softmx")
    assert shown.returncode == 2 and "gating-topk-softmax" in shown.stderr


def test_bisect_on_the_command_line_is_quiet_about_right_passes(router: Path) -> None:
    shown = moec("bisect", router)
    assert shown.returncode == 0 and "every pass keeps" in shown.stdout
