"""Passes from outside, options, verification after every pass, and who is blamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moec.diagnostics import CheckFailed, Refusal, Usage
from moec.ir.graph import Module
from moec.ir.text import parse_module, print_module
from moec.passes import base
from moec.passes.base import DEFAULT_PIPELINE, Context, Pass, PassManager, Result, parse_passes, register_pass

LAYER = """
func main(%x: f32[4]) -> (y: f32[4]) {
  %0 = neg(%x) : f32[4]
  %1 = neg(%0) : f32[4]
  %2 = exp(%1) : f32[4]
  return %2
}
"""


@pytest.fixture
def registry() -> Iterator[None]:
    """Passes registered in a test are forgotten after it."""
    base.known_passes()
    before = dict(base.PASSES)
    yield
    base.PASSES.clear()
    base.PASSES.update(before)


def test_user_pass_in_under_15_lines(registry: None) -> None:
    source = '''
from moec.passes.base import Pass, Result, register_pass
@register_pass
class CountNodes(Pass):
    """Renames values n0, n1, ..."""
    name = "rename"
    stem: str = "n"
    def run(self, module, context):
        for i, node in enumerate(module.nodes()):
            node.result.name = f"{self.stem}{i}"
        return Result(changed=True)
'''
    assert len(source.strip().splitlines()) < 15
    exec(compile(source, "user.py", "exec"), {})
    module = parse_module(LAYER)
    PassManager.parse("rename{stem=v},canonicalise").run(module)
    assert "%v2 = exp(%x)" in print_module(module)
    assert parse_passes("rename{stem=v}")[0].spec == "rename{stem=v}"
    assert parse_passes("rename")[0].spec == "rename"


def test_a_package_whose_rules_cannot_be_read_is_named(
    registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "broken_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[moec.passes]\nmine = broken_rules\n")
    (tmp_path / "broken_rules.py").write_text("""from moec.rewrite.rule import rule

@rule("double-neg", exactness="exact", why="the sign bit flips twice", cases=["x: [3], y: [3]"])
def double_neg(x):
    yield -(-x)
    yield x
""")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(base, "_loaded", False)
    for _ in range(2):
        with pytest.raises(Refusal, match=r"broken_rules\.py:3: entry point 'mine = .*broken-rules.*not a case.*';'"):
            base.known_passes()


def test_options_are_fields() -> None:
    fold = base.known_passes()["fold"]
    assert fold.options() == [("max_elements", "int", "4096"), ("weights", "bool", "true")]
    assert fold.summary().startswith("Replace nodes over constants")
    assert parse_passes("fold{max_elements=8,weights=false}, cse")[0] == fold(max_elements=8, weights=False)


def test_documentation_lists_options_and_rules() -> None:
    known = base.known_passes()
    assert "  max_elements: int = 4096" in known["fold"].documentation()
    said = known["canonicalise"].documentation()
    assert all(r.name in said for r in known["canonicalise"].rules())
    assert "not if the choice is along dimension 0" in known["fuse-gating"].documentation()


def test_all_mistakes_in_a_pipeline_at_once() -> None:
    with pytest.raises(Usage) as error:
        parse_passes("canonicalize,fold{max=1},fold{max_elements=x},dce{a=1")
    said = str(error.value)
    assert "unknown pass 'canonicalize'" in said and "did you mean 'canonicalise'?" in said
    assert "pass fold has no option 'max'" in said and "must be int, not 'x'" in said and "closing brace" in said


def test_every_pass_of_the_default_pipeline_is_known() -> None:
    assert [p.spec for p in parse_passes(DEFAULT_PIPELINE)] == DEFAULT_PIPELINE.split(",")


@pytest.mark.parametrize("fault", ["type", "order", "uses"])
def test_u20_a_pass_that_breaks_the_ir_is_named(registry: None, fault: str) -> None:
    """Sound passes around it are not blamed: the graph is verified after every pass."""

    @register_pass
    class Broken(Pass):
        """Breaks the graph on purpose."""

        name = "broken"

        def run(self, module: Module, context: Context) -> Result:
            first = next(iter(module.main))
            if fault == "type":
                first.result.type = first.result.type.with_shape((5,))
            elif fault == "order":
                module.main.move(first, None)
            else:
                first.operands[0] = first.result
            return Result(changed=True)

    with pytest.raises(CheckFailed, match=r"pass 2 \(broken\)"):
        PassManager.parse("cse,broken,dce").run(parse_module(LAYER))


def test_a_crash_is_a_failed_check_and_a_refusal_stays_one(registry: None) -> None:
    @register_pass
    class Crashes(Pass):
        """Fails."""

        name = "crashes"
        politely: bool = False

        def run(self, module: Module, context: Context) -> Result:
            if self.politely:
                raise Refusal("this layer has no such thing")
            raise IndexError("7")

    with pytest.raises(CheckFailed, match=r"pass 1 \(crashes\) failed with IndexError: 7"):
        PassManager.parse("crashes").run(parse_module(LAYER))
    with pytest.raises(Refusal, match=r"^this layer"):
        PassManager.parse("crashes{politely=true}").run(parse_module(LAYER))


def test_hooks_see_every_pass_and_a_failing_check_names_it() -> None:
    seen: list[str] = []

    def fails(number: int, each: Pass, module: Module, result: Result) -> None:
        seen.append(f"{number} {each.name} {result.changed}")
        if each.name == "cse":
            raise CheckFailed("outputs differ")

    manager = PassManager.parse("canonicalise,cse,dce", before=[lambda n, p, m: seen.append(p.name)], after=[fails])
    with pytest.raises(CheckFailed, match=r"after pass 2 \(cse\): outputs differ"):
        manager.run(parse_module(LAYER))
    assert seen == ["canonicalise", "1 canonicalise True", "cse", "2 cse False"]


def test_a_bad_module_is_found_before_the_first_pass() -> None:
    module = parse_module(LAYER)
    next(iter(module.main)).attrs["extra"] = 1
    with pytest.raises(CheckFailed, match="unknown attribute 'extra'"):
        PassManager.parse("dce").run(module)


def test_a_pass_needs_name_docstring_and_defaults(registry: None) -> None:
    with pytest.raises(TypeError, match="needs a name and a docstring"):
        register_pass(type("Nameless", (Pass,), {"__doc__": "x"}))
    with pytest.raises(TypeError, match="option 'n'"):
        register_pass(type("NoDefault", (Pass,), {"__doc__": "x", "name": "q", "__annotations__": {"n": "int"}}))
    with pytest.raises(TypeError, match="'fold' is taken"):
        register_pass(type("Other", (Pass,), {"__doc__": "x", "name": "fold"}))
