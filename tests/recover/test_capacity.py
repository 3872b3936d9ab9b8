"""Top-1 routing with a capacity is recovered with what it counts and what becomes of dropped tokens; near-misses
stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from switch_spellings import Switch, crowded

from moec.eval import run
from moec.frontend.onnx import load_onnx
from moec.ir.data import ArrayData
from moec.ir.graph import Module
from moec.ir.text import print_module
from moec.ir.types import F32, I64
from moec.ops.build import Builder
from moec.passes import recover_moe
from moec.passes.base import Context, PassManager, Result
from moec.passes.recover_moe import RecoverMoE


def recovered(module: Module, before: str = "") -> Result:
    return PassManager.parse(before + "recover-moe,dce").run(module)[-2].result


KINDS = [(scope, dropped) for scope in ("tokens", "sequence") for dropped in ("input", "zero")]
CASES = {
    f"{scope}, {dropped}, {count}": Switch(capacity=2, scope=scope, dropped=dropped, count=count)
    for scope, dropped in KINDS
    for count in ("inclusive", "exclusive", "masked")
} | {
    "top-k of one": Switch(choice="topk"),
    "top-k of one, added": Switch(choice="topk", dropped="zero", scope="tokens", weighed="before"),
    "compared": Switch(choice="compared", dropped="zero"),
    "rows weighed": Switch(dropped="zero", weighed="before"),
}


@pytest.mark.parametrize("before", ["", "canonicalise,fold,cse,dce,"], ids=["raw", "cleaned"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_capacity_scope_and_dropped_come_from_the_graph(case: Switch, before: str) -> None:
    module = case.module()
    inputs = [crowded(*shape) for shape in ((1, 1), (2, 9), (3, 4), (0, 5))]
    expected = [run(module, {"x": x})["y"] for x in inputs]
    result = recovered(module, before)
    assert result.counts() == {"recover-moe": 1} and not result.near_misses
    assert {n.op for n in module.main} == {"weight", "moe"} and list(module.symbols) == ["B", "S"]
    (node,) = [n for n in module.main if n.op == "moe"]
    a = node.attrs
    assert (a["capacity"], a["capacity_scope"], a["dropped"]) == (2, case.scope, case.dropped)
    assert (a["top_k"], a["score"], a["renormalize"], a["activation"], a["glu"]) == (
        1,
        "softmax",
        False,
        "relu",
        "none",
    )
    for x, y in zip(inputs, expected, strict=True):
        np.testing.assert_allclose(run(module, {"x": x})["y"], y, atol=1e-5)
    PassManager.parse("expand-moe").run(module)
    for x, y in zip(inputs, expected, strict=True):
        np.testing.assert_allclose(run(module, {"x": x})["y"], y, atol=1e-5)


def test_the_scopes_and_what_is_dropped_differ_on_these_tokens() -> None:
    """The numbers above tell all four apart."""
    x = crowded(2, 9)
    outputs = [run(CASES[f"{s}, {d}, inclusive"].module(), {"x": x})["y"] for s, d in KINDS]
    outputs.append(run(Switch(capacity=3).module(), {"x": x})["y"])
    assert all(not np.allclose(a, b) for i, a in enumerate(outputs) for b in outputs[:i])


def test_a_row_count_that_the_tracer_took_for_one() -> None:
    """A reshape to one row's size runs only where data gives one row: recovered, the block runs on all tokens."""
    baked, right = Switch(baked=(1, 3)).module(), Switch().module()
    result = recovered(baked)
    assert result.counts() == {"recover-moe": 1}
    x = crowded(3, 7)
    np.testing.assert_allclose(run(baked, {"x": x})["y"], run(right, {"x": x})["y"], atol=1e-5)


def number(b: Builder, value: Any, dtype: Any = F32) -> Any:
    return b.constant(value=ArrayData(np.array(value, dtype.carrier), dtype))


def doubled(b: Builder, v: Any) -> Any:
    return b.mul(v, number(b, 2, v.type.dtype))


NEAR_MISSES: dict[str, tuple[Switch, str]] = {
    "an expert without a body": (Switch(experts=(0, 1, 3)), "bodies found for experts 0, 1, 3; missing 2"),
    "an expert without a body, added": (
        Switch(experts=(1, 2), dropped="zero"),
        "router has 4 columns, bodies found for experts 1, 2; missing 0, 3",
    ),
    "counted from the end": (
        Switch(change={"count": lambda b, v: b.cumsum(v.producer.operand(0), axis=1, exclusive=False, reverse=True)}),
        "no sum over them was found: cumsum",
    ),
    "counted over the experts": (
        Switch(change={"count": lambda b, v: b.cumsum(v.producer.operand(0), axis=2, exclusive=False, reverse=False)}),
        "counted along something that is neither all tokens nor a sequence",
    ),
    "counted over the batch": (
        Switch(change={"count": lambda b, v: b.cumsum(v.producer.operand(0), axis=0, exclusive=False, reverse=False)}),
        "counted along something that is neither all tokens nor a sequence",
    ),
    "rows weighed, what is below not": (Switch(weighed="before"), "no sum over them was found"),
    "laid over something else": (Switch(change={"base": doubled}), "no sum over them was found"),
    "the weight is no score": (Switch(change={"weight": doubled}), "the routing weight is not the largest score"),
    "one expert takes all its tokens": (
        Switch(dropped="zero", change={"mask2": lambda b, v: _unlimited(b, v)}),
        "experts are added to a sum of other slots",
    ),
    "one expert laid over with all its tokens": (
        Switch(change={"mask2": lambda b, v: _unlimited(b, v)}),
        "the experts have different capacities",
    ),
    "written where it took no tokens": (
        Switch(capacity=6, change={"over2": lambda b, v: _unlimited(b, v)}),
        "no sum over them was found",
    ),
}


def _unlimited(b: Builder, mask: Any) -> Any:
    """The mask of expert 2 before the capacity cuts it."""
    kept = mask.producer.operand(0).producer.operand(0).producer
    return b.ne(b.gather(kept.operand(0), mask.producer.operand(1), axis=2), number(b, 0, I64))


@pytest.mark.parametrize("case", NEAR_MISSES.values(), ids=NEAR_MISSES.keys())
def test_near_misses_stay_as_they_are(case: tuple[Switch, str]) -> None:
    block, reason = case
    module = block.module()
    x = crowded(2, 6)
    before, text = run(module, {"x": x})["y"], print_module(module)
    result = RecoverMoE().run(module, Context())
    assert not result.applied and print_module(module) == text
    assert reason in result.near_misses[0].reason and result.near_misses[0].nodes
    np.testing.assert_array_equal(run(module, {"x": x})["y"], before)


def test_rows_of_one_expert_over_the_tokens_of_another() -> None:
    """Runs only where both have as many, so it is not run here."""
    other = {"over2": lambda b, v: b.gather(v.producer.operand(0), number(b, 1, I64), axis=2)}
    result = RecoverMoE().run(Switch(change=other).module(), Context())
    assert not result.applied and "no sum over them was found" in result.near_misses[0].reason


@pytest.mark.parametrize("wrong", [{"capacity_scope": "tokens"}, {"capacity": 3}, {"dropped": "zero"}])
def test_a_wrong_reading_does_not_pass_the_evaluation(wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The random tokens on which a match is evaluated overflow its experts, however large the capacity."""
    right = recover_moe.assembled

    def misread(*args: Any) -> Any:
        block = right(*args)
        return replace(block, attrs={**block.attrs, **wrong})

    monkeypatch.setattr(recover_moe, "assembled", misread)
    for capacity in (2, 40):
        (miss,) = recovered(Switch(capacity=2 if "capacity" in wrong else capacity).module()).near_misses
        assert "on random tokens it differs from the canonical block" in miss.reason


def test_real_exports(corpus: Any) -> None:
    """transformers 4.51 lays outputs over the input, 5 adds them to zeros; an expert that got no token is named."""
    for name, dropped, reasons in (
        ("moe_torchscript_dyn_op20_tf451", "input", []),
        ("modelmask_torchscript_dyn_op20_tf451", "input", ["bodies found for experts 0, 2, 3; missing 1"]),
        ("moe_torchscript_static_op17", "zero", []),
    ):
        module = load_onnx(corpus.onnx(f"switch_transformers_{name}"))
        result = recovered(module, "canonicalise,fold,canonicalise,cse,dce,")
        (a,) = [n.attrs for n in module.main if n.op == "moe"]
        assert (a["capacity"], a["capacity_scope"], a["dropped"]) == (64, "sequence", dropped)
        misses = [m.reason for m in result.near_misses]
        assert len(misses) == len(reasons) and all(r in m for r, m in zip(reasons, misses, strict=True))
        with np.load(corpus.npz(f"switch_transformers_{name}")) as stored:
            feeds = {v.name: stored[f"in.{v.name}"] for v in module.main.inputs}
            np.testing.assert_allclose(next(iter(run(module, feeds).values())), stored["out.0"], atol=1e-4)
