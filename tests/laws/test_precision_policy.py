"""precision-policy: which parts get which number format, what stays, and the error that it reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moec.diagnostics import Refusal, Usage
from moec.eval import error_between, run
from moec.frontend.dsl import parse_moe
from moec.ir.graph import Module
from moec.ir.text import parse_module, print_module
from moec.passes.base import Context, PassManager, Result, parse_passes

GOLDEN = Path(__file__).parent.parent / "golden" / "passes" / "precision-policy"

SENT = """
group g = 2
input x: f32[4, 8]
a = all_reduce(x, group = g, reduction = "sum")
b = all_gather(a, group = g, axis = 0)
output y = b
"""


def block() -> Module:
    return parse_module((GOLDEN / "experts.mir").read_text(encoding="utf-8").partition("==== expected\n")[0])


def apply(module: Module, options: str = "", context: Context | None = None) -> Result:
    spec = "precision-policy" + (f"{{{options}}}" if options else "")
    return PassManager(parse_passes(spec)).run(module, context)[0].result


def numbers(module: Module, tokens: int = 6) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        v.name: rng.normal(size=[d if isinstance(d, int) else tokens for d in v.type.dims]).astype(v.type.dtype.carrier)
        for v in module.main.inputs
    }


@pytest.mark.parametrize(("experts", "most"), [("bf16", 0.02), ("f16", 0.003)])
def test_the_reported_error_is_that_of_the_outputs(experts: str, most: float) -> None:
    before, after = block(), block()
    given = numbers(before)
    result = apply(after, f"experts={experts}", Context(witness=lambda m: run(m, given)))
    old, new = (run(m, given)["y"] for m in (before, after))
    assert result.errors == {"y": error_between(new, old)}
    assert 0 < result.errors["y"][1] < most
    assert {n.result.type.dtype.name for n in after.main if n.op == "grouped_matmul"} == {experts}


def test_nothing_is_reported_without_witness_inputs_or_changes() -> None:
    assert apply(block()).errors == {}
    given = numbers(block())
    unchanged = apply(block(), "experts=none", Context(witness=lambda m: run(m, given)))
    assert not unchanged.changed and unchanged.errors == {}


def test_the_choice_of_experts_is_kept() -> None:
    """The router reads what it read before: the same experts, weights bit by bit."""
    before, after = block(), block()
    apply(after)
    for module in (before, after):
        gate = next(n for n in module.main if n.op == "gating")
        module.main.set_outputs(gate.results, ["w", "e", "c"])
    given = numbers(before)
    old, new = (run(m, given) for m in (before, after))
    assert all(np.array_equal(old[n], new[n]) for n in old)


def test_a_second_run_changes_nothing() -> None:
    module = block()
    apply(module)
    text = print_module(module)
    assert not apply(module).changed and print_module(module) == text


def test_gradients_of_weights_stay_wide() -> None:
    module = block()
    PassManager.parse("autodiff").run(module)
    apply(module)
    PassManager.parse("dce").run(module)
    products = [n for n in module.main if n.op == "grouped_matmul_dw"]
    assert products and {n.operand(0).type.dtype.name for n in products} == {"bf16"}
    assert {n.result.type.dtype.name for n in products} == {"f32"}
    assert {v.type.dtype.name for v in module.main.outputs} == {"f32"}
    assert {n.op for n in module.main if n.op == "swiglu_grad" and n.result.type.dtype.name == "bf16"}


def test_collectives_are_sent_narrow_but_for_the_named() -> None:
    module = parse_moe(SENT)
    result = apply(module, "keep=all_reduce")
    kinds = {n.op: n.operand(0).type.dtype.name for n in module.main if n.op.startswith("all_")}
    assert kinds == {"all_reduce": "f32", "all_gather": "bf16"}
    assert result.counts() == {"collective-narrow": 1}
    assert [m.reason for m in result.near_misses] == ["kept in f32"]
    assert str(module.main.outputs[0].type) == "f32[8, 8]"


def test_collectives_may_all_stay() -> None:
    module = parse_moe(SENT)
    assert not apply(module, "collectives=none").changed


def test_what_is_kept_must_be_there() -> None:
    with pytest.raises(Refusal, match="no collective is called 'router'"):
        apply(parse_moe(SENT), "keep=all_reduce+router")


@pytest.mark.parametrize("options", ["experts=f32", "router=bf16", "collectives=f8"])
def test_formats_that_are_not_offered_are_refused(options: str) -> None:
    with pytest.raises(Usage, match=r"precision-policy|router computes"):
        apply(block(), options)
