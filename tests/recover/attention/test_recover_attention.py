"""recover-attention: every spelling becomes one ``attention`` node with all attributes read from the graph; what only
looks alike stays and is reported."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from attention_spellings import BEHIND, CAUSAL, LOWEST, Attention, B, D, Mask, S, V, attention, number, window

from moec.eval import run
from moec.ir.graph import Graph, Module, Node
from moec.ir.types import BOOL, F16, F32, TensorType
from moec.ops.build import Builder
from moec.passes.base import PassManager, Result
from moec.passes.recover_attention import SCORES_READ_ELSEWHERE
from moec.passes.recover_attention.scores import READ_ELSEWHERE

CLEAN = "canonicalise,fold,"


def recovered(module: Module, before: str = "") -> Result:
    """What recover-attention did; the module is verified after each pass."""
    return PassManager.parse(before + "recover-attention,dce").run(module)[-2].result


def inputs(module: Module, batch: int = 2, rows: int = 5, past: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    sizes = {"B": batch, "S": rows, "P": past}
    made = {}
    for v in module.main.inputs:
        shape = [d if isinstance(d, int) else sum(sizes.get(t, 0) for t in str(d).split(" + ")) for d in v.type.dims]
        values = rng.random(shape) < 0.6 if v.type.dtype is BOOL else rng.standard_normal(shape)
        made[v.name] = values.astype(v.type.dtype.carrier)
    return made


def checked(module: Module, before: str = "") -> Node:
    """The one node that the attention becomes; outputs stay what they were."""
    given = inputs(module)
    expected = run(module, given, fp64=True)["y"]
    result = recovered(module, before)
    assert result.counts().get("recover-attention") == 1 and not result.near_misses
    (node,) = [n for n in module.main if n.op == "attention"]
    assert not [n for n in module.main if n.op in ("softmax", "matmul")]
    np.testing.assert_allclose(run(module, given, fp64=True)["y"], expected, atol=1e-6)
    return node


def attrs(node: Node) -> dict[str, Any]:
    a = node.attrs
    return {"causal": a["causal"], "offset": str(a["offset"]), "window": a["window"], "softcap": a["softcap"]}


PLAIN = {"causal": False, "offset": "0", "window": None, "softcap": None}


@pytest.mark.parametrize("before", ["", CLEAN], ids=["raw", "cleaned"])
@pytest.mark.parametrize("scale_on", ["scores", "divided", "q", "k", "both"])
@pytest.mark.parametrize("keys", ["flipped", "transposed", "rank3"])
def test_scale_and_layout(scale_on: str, keys: str, before: str) -> None:
    node = checked(attention(Attention(scale_on=scale_on, keys=keys, scale=1 / 3)), before)
    assert node.attrs["scale"] == pytest.approx(1 / 3, rel=1e-6)
    assert attrs(node) == PLAIN
    q, k, v = (node.operand(i) for i in range(3))
    assert [x.name for x in (q, k, v)] == ["q", "k", "v"], "each operand is the tensor before scale and repetition"


def test_u11_the_scale_is_read_and_not_the_usual_one() -> None:
    """1 / sqrt(D + 1) and no scale at all are kept as they are."""
    assert checked(attention(Attention(scale=1 / math.sqrt(D + 1)))).attrs["scale"] == pytest.approx(1 / 3, rel=1e-6)
    assert checked(attention(Attention(scale_on="nothing"))).attrs["scale"] == 1.0


@pytest.mark.parametrize("heads, own, share", [(4, 4, "none"), (4, 2, "grouped"), (6, 1, "expand"), (6, 3, "grouped")])
def test_heads_that_share_keys(heads: int, own: int, share: str) -> None:
    node = checked(attention(Attention(heads=heads, own=own, share=share)))
    assert [node.operand(i).type.dims[1] for i in range(3)] == [heads, own, own]


def test_heads_repeated_in_another_order_keep_their_own_keys() -> None:
    """``tile`` gives query head n key head n mod 2, which is not how attention shares them."""

    def tiled(b: Builder, k: Any) -> Any:
        first = b.slice(k, axis=1, start=0, stop=2, step=1)
        return b.tile(first, repeats=(1, 2, 1, 1))

    node = checked(attention(Attention(own=4, change={"k": tiled})))
    assert node.operand(1).type.dims[1] == 4


@pytest.mark.parametrize("before", ["", CLEAN], ids=["raw", "cleaned"])
@pytest.mark.parametrize("mask", CAUSAL.values(), ids=CAUSAL)
def test_causal_masks_become_an_attribute(mask: Mask, before: str) -> None:
    node = checked(attention(Attention(mask=mask)), before)
    assert attrs(node) == {**PLAIN, "causal": True} and node.operands[3] is None


@pytest.mark.parametrize("mask", BEHIND.values(), ids=BEHIND)
def test_queries_behind_a_cache(mask: Mask) -> None:
    node = checked(attention(Attention(mask=mask, past=True)))
    assert attrs(node) == {**PLAIN, "causal": True, "offset": "P"}


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("spelling", ["and", "or"])
def test_windows_become_an_attribute(spelling: str, past: bool) -> None:
    node = checked(attention(Attention(mask=Mask(window(3, spelling), LOWEST), past=past)))
    assert attrs(node) == {**PLAIN, "causal": True, "window": 3, "offset": "P" if past else "0"}


def test_a_window_wider_than_any_witness() -> None:
    """Whether a mask is only causal does not show at small sizes; it is read from how the mask is made."""
    node = checked(attention(Attention(mask=Mask(window(4096, "and"), -math.inf))))
    assert attrs(node) == {**PLAIN, "causal": True, "window": 4096}


def _padding(b: Builder, rows: Any, keys: Any) -> Any:
    given = b.graph.add_input("padding", TensorType(BOOL, (B, keys)))
    return b.node("and", b.reshape(given, shape=(B, 1, 1, keys)), CAUSAL["chosen"].build(b, rows, keys)).result


@pytest.mark.parametrize("guard, empty", [(False, "nan"), (True, "zero")])
def test_other_masks_stay_operands(guard: bool, empty: str) -> None:
    node = checked(attention(Attention(mask=Mask(_padding, -math.inf), guard=guard)))
    assert attrs(node) == PLAIN and node.attrs["empty_rows"] == empty
    assert node.operand(3).type.dtype is BOOL


def test_added_masks_of_minus_infinity_become_bool() -> None:
    def added(b: Builder, rows: Any, keys: Any) -> Any:
        return b.select(_padding(b, rows, keys), number(b, 0.0), number(b, -math.inf))

    assert checked(attention(Attention(mask=Mask(added), guard=True))).operand(3).type.dtype is BOOL


def test_lowest_instead_of_minus_infinity_stays_a_number() -> None:
    """Rows without keys are then uniform, neither zero nor NaN."""
    node = checked(attention(Attention(mask=Mask(_padding, LOWEST))))
    assert node.operand(3).type.dtype is F32


def test_a_bias_stays_an_operand() -> None:
    def bias(b: Builder, rows: Any, keys: Any) -> Any:
        return b.graph.add_input("bias", TensorType(F32, (1, 4, rows, keys)))

    assert checked(attention(Attention(mask=Mask(bias)))).operand(3).name == "bias"


@pytest.mark.parametrize("own", [2, 4])
def test_sinks(own: int) -> None:
    node = checked(attention(Attention(own=own, sinks=True, mask=Mask(window(3, "and"), -math.inf))))
    assert node.operand(4).name == "sinks" and node.operands[3] is None
    assert attrs(node) == {**PLAIN, "causal": True, "window": 3}


def test_soft_cap() -> None:
    node = checked(attention(Attention(softcap=30.0, mask=CAUSAL["chosen"])))
    assert attrs(node) == {**PLAIN, "causal": True, "softcap": 30.0}
    assert node.attrs["scale"] == pytest.approx(0.3)


def test_softmax_in_f32() -> None:
    node = checked(attention(Attention(dtype=F16, wide=True, scale=0.25)))
    assert node.result.type.dtype is F16


def _missed(a: Attention) -> str:
    module = attention(a)
    given = inputs(module)
    expected = run(module, given)["y"]
    result = recovered(module)
    assert not result.applied and not [n for n in module.main if n.op == "attention"]
    np.testing.assert_array_equal(run(module, given)["y"], expected)
    assert all(m.nodes for m in result.near_misses)
    return "; ".join(m.reason for m in result.near_misses)


def test_u10_keys_permuted_by_more_than_the_last_two_dimensions() -> None:
    """Where heads and positions are as many, any permutation multiplies; only the last two exchanged is attention."""
    module = Module()
    graph = module.add(Graph("main"))
    b = Builder(graph)
    q, k, v = (graph.add_input(n, TensorType(F32, (2, 4, 4, D))) for n in "qkv")
    scores = b.matmul(q, b.transpose(k, perm=(0, 2, 3, 1)), transpose_a=False, transpose_b=False)
    graph.set_outputs([b.matmul(b.softmax(scores, axis=3), v, transpose_a=False, transpose_b=False)], ["y"])
    (miss,) = recovered(module).near_misses
    assert miss.reason == "keys are permuted by [0, 2, 3, 1]: more than the last two dimensions"
    assert not [n for n in module.main if n.op == "attention"]


def test_near_misses_say_why() -> None:
    def squared(b: Builder, x: Any) -> Any:
        return b.mul(x, x)

    def shifted(b: Builder, x: Any) -> Any:
        return b.add(x, b.matmul(b.graph.inputs[0], b.graph.inputs[1], transpose_a=False, transpose_b=True))

    plain = {"own": 4, "share": "none"}
    assert "pass through mul" in _missed(Attention(change={"scores": squared}))
    assert "two products" in _missed(Attention(change={"scores": shifted}, **plain))  # type: ignore[arg-type]
    soft = Mask(CAUSAL["chosen"].build, -5.0)
    assert "become -5.0, which still counts" in _missed(Attention(mask=soft))
    assert "without keys attends by scores" in _missed(Attention(mask=Mask(_padding, -20000.0)))


def test_probabilities_that_others_read_stay() -> None:
    module = attention(Attention())
    (softmax,) = [n for n in module.main if n.op == "softmax"]
    module.main.set_outputs([*module.main.outputs, softmax.result], ["y", "p"])
    (miss,) = recovered(module).near_misses
    assert miss.reason == READ_ELSEWHERE


def test_scores_that_others_read_stay() -> None:
    module = attention(Attention())
    scores = next(n for n in module.main if n.op == "matmul").result
    module.main.set_outputs([*module.main.outputs, scores], ["y", "s"])
    (miss,) = recovered(module).near_misses
    assert miss.reason == SCORES_READ_ELSEWHERE and [n.op for n in miss.nodes] == ["softmax", "matmul"]
    assert "attention" not in {n.op for n in module.main}


def test_what_is_no_attention_is_not_reported() -> None:
    module = Module()
    graph = module.add(Graph("main"))
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (S, D)))
    w, e = graph.add_input("w", TensorType(F32, (D, V))), graph.add_input("e", TensorType(F32, (V, D)))
    p = b.softmax(b.add(x, x), axis=1)
    r = b.softmax(b.matmul(x, w, transpose_a=False, transpose_b=False), axis=0)
    y = b.add(b.matmul(p, w, transpose_a=False, transpose_b=False), b.mul(r, r))
    graph.set_outputs([b.matmul(y, e, transpose_a=False, transpose_b=False)], ["y"])
    result = recovered(module)
    assert not result.applied and not result.near_misses


def test_attention_that_is_there_takes_its_mask_and_heads_as_attributes() -> None:
    module = Module()
    module.symbols |= {"B": (1, 64), "S": (1, 4096)}
    graph = module.add(Graph("main"))
    b = Builder(graph)
    q, k, v = (graph.add_input(n, TensorType(F32, (B, h, S, D))) for n, h in (("q", 4), ("k", 2), ("v", 2)))
    more = [
        b.reshape(b.expand(b.reshape(x, shape=(B, 2, 1, S, D)), shape=(B, 2, 2, S, D)), shape=(B, 4, S, D))
        for x in (k, v)
    ]
    same = {"scale": 0.3, "offset": 0, "window": None, "softcap": None, "empty_rows": "zero"}
    y = b.attention(q, *more, CAUSAL["iota times lowest"].build(b, S, S), causal=False, **same)
    graph.set_outputs([y], ["y"])
    node = checked(module)
    assert attrs(node) == {**PLAIN, "causal": True} and node.operands[3] is None
    assert [node.operand(i).name for i in range(3)] == ["q", "k", "v"]


def test_a_mask_that_all_callers_give_alike() -> None:
    """In a layer's function the mask is an input; what it means is what every call gives."""
    module = attention(Attention(mask=CAUSAL["trilu and where"]))
    body = module.functions.pop("main")
    (add,) = [n for n in body if n.op == "add"]
    given = body.add_input("mask", add.operand(1).type)
    add.set_operand(1, given)
    PassManager.parse("dce").run(_with(module, body))
    module = _with(Module(), body)
    module.symbols |= {"B": (1, 64), "S": (1, 4096)}
    expected_module = attention(Attention(mask=CAUSAL["trilu and where"]))
    feeds = inputs(expected_module)
    expected = run(expected_module, feeds)["y"]
    result = recovered(module)
    assert result.counts() == {"recover-attention": 1}
    (node,) = [n for n in module.functions["layer"] if n.op == "attention"]
    assert node.attrs["causal"]
    np.testing.assert_allclose(run(module, feeds)["y"], expected, atol=1e-6)


def _with(module: Module, body: Graph) -> Module:
    """A module whose ``main`` calls ``body`` with a causal mask."""
    body.name = "layer"
    module.functions.clear()
    main = module.add(Graph("main"))
    module.add(body)
    b = Builder(main)
    inputs = [main.add_input(v.name, v.type) for v in body.inputs[:-1]]
    mask = CAUSAL["trilu and where"].build(b, S, S)
    main.set_outputs(list(b.call(module, "layer", *inputs, mask)), ["y"])
    return module
