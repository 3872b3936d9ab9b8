"""What ``moec explain`` says: runs of one pass together, places with copies and sides, reasons with their places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
from command import moec

from moec.explain import Entry, explain
from moec.passes.base import PASSES, parse_passes, register_pass
from moec.passes.rule_pass import RulePass
from moec.rewrite.rule import RULES, Rule, rule
from moec.rewrite.term import T, Term, require

DATA = Path(__file__).parents[1] / "data"
EXAMPLES = Path(__file__).parents[2] / "examples"


@rule("test-tanh-square", exactness="exact", why="it is a test", cases=["x: [3, 5]"])
def tanh_square(x: Term) -> Iterator[Any]:
    yield T.tanh(x) * T.tanh(x)
    require(x.shape[1] == 5, f"x has {x.shape[1]} columns", x)
    yield T.tanh(x)


@rule("test-neg-neg", exactness="exact", why="signs cancel", cases=["x: [3, 5]"])
def neg_neg(x: Term) -> Iterator[Any]:
    yield T.neg(T.neg(x))
    yield x


del RULES["test-tanh-square"], RULES["test-neg-neg"]  # the law tests are of rules that are meant to hold


@register_pass
class Squares(RulePass):
    """A rule with a guard, and one without."""

    name: ClassVar[str] = "test-squares"

    @classmethod
    def rules(cls) -> list[Rule]:
        return [tanh_square, neg_neg]


PASSES.pop(Squares.name)


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass is known during these tests only."""
    monkeypatch.setitem(PASSES, Squares.name, Squares)


def layer(tmp_path: Path, columns: int = 6) -> Path:
    """tanh squared, and a sign turned twice."""
    path = tmp_path / "layer.mir"
    body = f"  %t = tanh(%x) : f32[3, {columns}]\n  %y = mul(%t, %t) : f32[3, {columns}]\n"
    body += f"  %a = neg(%x) : f32[3, {columns}]\n  %z = neg(%a) : f32[3, {columns}]\n"
    path.write_text(
        f"func main(%x: f32[3, {columns}]) -> (y: f32[3, {columns}], z: f32[3, {columns}]) {{\n{body}"
        "  return %y, %z\n}\n",
        encoding="utf-8",
    )
    return path


def entries(path: Path, passes: str) -> dict[str, Entry]:
    found = explain(path, parse_passes(passes), None, {}, lambda name: nullcontext())
    assert len({(e.spec, e.rule) for e in found}) == len(found)
    return {e.rule: e for e in found}


def test_a_pass_that_runs_twice_is_one_pass(tmp_path: Path) -> None:
    found = entries(layer(tmp_path), "test-squares,dce,test-squares")
    assert found["test-neg-neg"].fired == 1
    assert found["test-tanh-square"].near_misses == 1
    assert list(found["test-tanh-square"].missed) == ["x has 6 columns"]


def test_a_near_miss_that_fires_later_is_none(tmp_path: Path) -> None:
    found = entries(layer(tmp_path, 5), "test-squares")
    assert found["test-tanh-square"].fired == 1 and not found["test-tanh-square"].missed


def test_places_name_each_node_of_the_input_once_and_not_the_file(tmp_path: Path) -> None:
    (place,) = entries(layer(tmp_path), "test-squares")["test-neg-neg"].applied
    assert str(place) and "layer.mir" not in str(place) and str(place).count(";") == len(place.sources) - 1
    assert place.lines() == sorted({s.line for s in place.sources})


def test_layers_that_are_alike_are_one_place_with_their_copies(tmp_path: Path) -> None:
    calls = "".join(f'  %y{i} = call(%y{i - 1}) {{fn = "layer"}} : f32[3, 5]\n' for i in (1, 2)).replace("%y0", "%x")
    text = "func layer(%x: f32[3, 5]) -> (z: f32[3, 5]) {\n  %a = neg(%x) : f32[3, 5]\n  %z = neg(%a) : f32[3, 5]\n"
    text += f"  return %z\n}}\nfunc main(%x: f32[3, 5]) -> (y: f32[3, 5]) {{\n{calls}  return %y2\n}}\n"
    (tmp_path / "two.mir").write_text(text, encoding="utf-8")
    (place,) = entries(tmp_path / "two.mir", "test-squares")["test-neg-neg"].applied
    assert place.lines() == [2, 3] and place.calls == (7, 8)
    assert str(place).endswith("(in layer, copies at 7, 8)")


def test_training_graphs_tell_the_backward_side() -> None:
    shown = json.loads(moec("explain", EXAMPLES / "tiny_moe.moe", "--train", "--json").stdout)
    sides = {at["backward"] for e in shown for at in e["fired"] if e["pass"] == "fuse-vector"}
    assert sides == {False, True}
    assert any(e["fired"] for e in shown if e["pass"] == "autodiff")


def test_options_of_training_want_train() -> None:
    for options in (["--loss", "y"], ["--recompute", "act"]):
        refused = moec("explain", EXAMPLES / "tiny_moe.moe", *options)
        assert refused.returncode == 2 and "--train" in refused.stderr


def test_passes_that_found_nothing_are_named() -> None:
    shown = moec("explain", EXAMPLES / "tiny_moe.moe").stdout
    assert "expand-moe (expand-moe)\n  fired at 24 moe\n" in shown
    last = shown.strip().splitlines()[-1]
    assert last.startswith("nothing to do for ") and "rotate-half-elim" in last and "expand-moe" not in last
