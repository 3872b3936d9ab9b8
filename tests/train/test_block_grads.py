"""The joint graph of a whole block, after expansion, against central differences of the ``moe`` op's reference.

The reference loops over experts and knows nothing of permutations, grouped products or the expansion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from grad_cases import ACTIVATIONS, ROUTERS, routing
from op_gradients import differences

from moec.autodiff import differentiate
from moec.eval import run
from moec.ir.graph import Graph, Module
from moec.ir.types import F32, TensorType
from moec.ops import OPS
from moec.ops.build import make_node
from moec.ops.verify import verify
from moec.passes.base import Context
from moec.passes.expand_moe import ExpandMoE

Array = np.ndarray
NAMES = [operand.name for operand in OPS["moe"].signature.operands]
PLAIN = ACTIVATIONS["silu, chunked"]
DROPLESS: dict[str, Any] = {"router_dtype": F32, "capacity": None, "capacity_scope": "none", "dropped": "none"}


def block(
    rng: np.random.Generator,
    router: dict[str, Any],
    act: dict[str, Any],
    tokens: int = 4,
    experts: int = 8,
    hidden: int = 3,
    inner: int = 2,
    biases: bool = False,
    shared: bool = False,
    gate: bool = False,
    steer: bool = False,
    weights_on: str = "output",
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Operands by name and attributes of a block of these sizes."""
    up = inner if act["glu"] == "none" else 2 * inner
    x: dict[str, tuple[int, ...]] = {
        "x": (1, tokens, hidden),
        "router": (experts, hidden),
        "gate_up": (experts, up, hidden),
        "down": (experts, hidden, inner),
    }
    if biases:
        x |= {"router_bias": (experts,), "gate_up_bias": (experts, up), "down_bias": (experts, hidden)}
    if shared:
        x |= {"shared_gate_up": (up, hidden), "shared_down": (hidden, inner)}
    if gate:
        x |= {"shared_gate": (1, hidden)}
    if steer:
        x |= {"score_bias": (experts,)}
    operands = {n: rng.standard_normal(x[n]) for n in NAMES if n in x}
    return operands, {**router, **act, **DROPLESS, "weights_on": weights_on}


def joint(operands: dict[str, Array], attrs: dict[str, Any]) -> Module:
    """Forward and backward of the expanded block; every operand is an input."""
    graph = Graph("main")
    given = [graph.add_input(n, TensorType(F32, operands[n].shape)) if n in operands else None for n in NAMES]
    node = graph.insert(make_node("moe", list(given), attrs), None)
    graph.set_outputs(node.results[:1], ["y"])
    module = Module()
    module.add(graph)
    ExpandMoE().run(module, Context())
    assert not [n for n in module.nodes() if n.op == "moe"]
    differentiate(module)
    verify(module)
    return module


def check(
    operands: dict[str, Array], attrs: dict[str, Any], skip: tuple[str, ...] = ("score_bias",)
) -> dict[str, Array]:
    """Assert that the joint graph gives the reference's outputs and differences; the gradients by operand."""
    module = joint(operands, attrs)
    shape = operands["x"].shape
    dy = np.random.default_rng(99).standard_normal(shape) if operands["x"].size > 1 else np.ones(shape)
    given = {v.name: {**operands, "d_y": dy}[v.name] for v in module.main.inputs}
    got = run(module, given, fp64=True)
    full = OPS["moe"].complete(attrs)

    def loss() -> float:
        return float(np.sum(dy * OPS["moe"].ref(*(operands.get(n) for n in NAMES), **full)[0]))

    np.testing.assert_allclose(np.sum(dy * got["y"]), loss(), rtol=1e-12)
    assert "d_score_bias" not in got
    for name, x in operands.items():
        if name not in skip:
            expected = differences(loss, x)
            scale = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(got[f"d_{name}"], expected, rtol=0, atol=1e-7 * scale, err_msg=name)
    return {n[2:]: a for n, a in got.items() if n.startswith("d_")}


@pytest.mark.parametrize("router", ROUTERS)
def test_routers(router: str) -> None:
    attrs, steer = ROUTERS[router]
    check(*block(np.random.default_rng(0), attrs, PLAIN, steer=steer))


@pytest.mark.parametrize("form", [f for f in ACTIVATIONS if f.startswith("silu") or "chunked, limited" in f])
def test_activations(form: str) -> None:
    check(*block(np.random.default_rng(1), routing(top_k=2), ACTIVATIONS[form], experts=4, biases=True))


@pytest.mark.parametrize("weights_on", ["output", "input", "activation"])
@pytest.mark.parametrize("shared", [False, True])
def test_where_the_weights_apply(weights_on: str, shared: bool) -> None:
    rng = np.random.default_rng(2)
    router = routing("sigmoid", top_k=2, renormalize=True, scale=2.5)
    check(*block(rng, router, PLAIN, experts=4, shared=shared, gate=shared, weights_on=weights_on, steer=True))


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (1, 5, 2, 3, 2), (6, 1, 1, 3, 2), (5, 3, 3, 1, 1), (7, 9, 1, 2, 3)])
@pytest.mark.parametrize("seed", range(2))
def test_sizes(sizes: tuple[int, ...], seed: int) -> None:
    """One token, one expert, one choice, one channel, and odd numbers of each."""
    tokens, experts, top_k, hidden, inner = sizes
    router = routing("sigmoid", top_k=top_k, renormalize=top_k > 1)
    check(*block(np.random.default_rng(seed), router, PLAIN, tokens, experts, hidden, inner, biases=True))


def test_experts_without_tokens_get_exact_zeros() -> None:
    """A bias that keeps five of eight experts out; so no difference of theirs is other than 0 either."""
    operands, attrs = block(np.random.default_rng(3), routing("sigmoid"), PLAIN, biases=True, steer=True, tokens=6)
    operands["score_bias"] = np.where(np.arange(8) % 3 == 1, 10.0, 0.0) + np.where(np.arange(8) == 0, 5.0, 0.0)
    found = check(operands, attrs)
    used = np.isin(np.arange(8), [0, 1, 4, 7])
    chosen = OPS["gating"].ref(np.zeros((1, 8)), operands["score_bias"], **routing("sigmoid"))[1]
    assert set(chosen.ravel()) <= set(np.flatnonzero(used))
    for name in ("gate_up", "down", "gate_up_bias", "down_bias", "router", "router_bias"):
        idle = [e for e in range(8) if e not in chosen]
        assert not found[name][idle].any(), name
        assert all(found[name][e].any() for e in chosen.ravel()), name


def test_ties_go_to_the_lower_expert_in_backward_too() -> None:
    """Experts 1 and 2 have one row of the router, so they tie whatever x is; the router itself has no difference."""
    operands, attrs = block(np.random.default_rng(4), routing(top_k=1), PLAIN, experts=4)
    operands["router"][:] = operands["router"][1]
    found = check(operands, attrs, skip=("router",))
    assert found["down"][0].any() and not found["down"][1:].any()


def test_nothing_but_the_choice_is_saved_as_integers_and_it_is_saved() -> None:
    operands, attrs = block(np.random.default_rng(0), routing(), PLAIN)
    saved = {n.attrs["name"]: n.result.type for n in joint(operands, attrs).main if n.op == "save"}
    integers = sorted(str(t) for t in saved.values() if t.dtype.is_int)
    assert integers == ["i32[4, 3]", "i32[4, 3]", "i32[8]"]
