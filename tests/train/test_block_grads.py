"""The joint graph of a whole block, after expansion, against central differences of the ``moe`` op's reference."""

from __future__ import annotations

import numpy as np
import pytest
from grad_cases import ACTIVATIONS, ROUTERS, routing
from moe_blocks import block, check_block, joint, saved

from moec.eval import run
from moec.ops import OPS

PLAIN = ACTIVATIONS["silu, chunked"]


@pytest.mark.parametrize("router", ROUTERS)
def test_routers(router: str) -> None:
    attrs, steer = ROUTERS[router]
    check_block(*block(np.random.default_rng(0), attrs, PLAIN, steer=steer))


@pytest.mark.parametrize("form", [f for f in ACTIVATIONS if f.startswith("silu") or "chunked, limited" in f])
def test_activations(form: str) -> None:
    check_block(*block(np.random.default_rng(1), routing(top_k=2), ACTIVATIONS[form], experts=4, biases=True))


@pytest.mark.parametrize("weights_on", ["output", "input", "activation"])
@pytest.mark.parametrize("shared", [False, True])
def test_where_the_weights_apply(weights_on: str, shared: bool) -> None:
    rng = np.random.default_rng(2)
    router = routing("sigmoid", top_k=2, renormalize=True, scale=2.5)
    check_block(*block(rng, router, PLAIN, experts=4, shared=shared, gate=shared, weights_on=weights_on, steer=True))


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (1, 5, 2, 3, 2), (6, 1, 1, 3, 2), (5, 3, 3, 1, 1), (7, 9, 1, 2, 3)])
@pytest.mark.parametrize("seed", range(2))
def test_sizes(sizes: tuple[int, ...], seed: int) -> None:
    """One token, one expert, one choice, one channel, and odd numbers of each."""
    tokens, experts, top_k, hidden, inner = sizes
    router = routing("sigmoid", top_k=top_k, renormalize=top_k > 1)
    check_block(*block(np.random.default_rng(seed), router, PLAIN, tokens, experts, hidden, inner, biases=True))


def test_experts_without_tokens_get_exact_zeros() -> None:
    """A bias that keeps five of eight experts out; so no difference of theirs is other than 0 either."""
    operands, attrs = block(np.random.default_rng(3), routing("sigmoid"), PLAIN, biases=True, steer=True, tokens=6)
    operands["score_bias"] = np.where(np.arange(8) % 3 == 1, 10.0, 0.0) + np.where(np.arange(8) == 0, 5.0, 0.0)
    found = check_block(operands, attrs)
    used = np.isin(np.arange(8), [0, 1, 4, 7])
    chosen = OPS["gating"].ref(np.zeros((1, 8)), operands["score_bias"], **routing("sigmoid"))[1]
    assert set(chosen.ravel()) <= set(np.flatnonzero(used))
    for name in ("gate_up", "down", "gate_up_bias", "down_bias", "router", "router_bias"):
        idle = [e for e in range(8) if e not in chosen]
        assert not found[name][idle].any(), name
        assert all(found[name][e].any() for e in chosen.ravel()), name


@pytest.mark.parametrize("weights_on", ["output", "input", "activation"])
@pytest.mark.parametrize("dropped", ["zero", "input"])
@pytest.mark.parametrize("scope", ["tokens", "sequence"])
def test_slots_above_a_capacity(scope: str, dropped: str, weights_on: str) -> None:
    """Three experts for six tokens, two slots each, so that some are dropped."""
    router = routing("sigmoid", top_k=2, renormalize=True)
    operands, attrs = block(np.random.default_rng(6), router, PLAIN, 6, 3, biases=True, weights_on=weights_on)
    check_block(operands, {**attrs, "capacity": 2, "capacity_scope": scope, "dropped": dropped})


@pytest.mark.parametrize("router", ROUTERS)
def test_no_tokens_give_zeros(router: str) -> None:
    attrs, steer = ROUTERS[router]
    operands, all_attrs = block(np.random.default_rng(0), attrs, PLAIN, tokens=0, steer=steer, shared=True)
    module = joint(operands, all_attrs)
    feeds = {v.name: operands.get(v.name, operands["x"]).astype(np.float32) for v in module.main.inputs}
    for name, got in run(module, feeds).items():
        assert not got.any() and (got.size or name in ("y", "d_x")), name


def test_ties_go_to_the_lower_expert_in_backward_too() -> None:
    """Experts 1 and 2 have one row of the router, so they tie whatever x is; the router itself has no difference."""
    operands, attrs = block(np.random.default_rng(4), routing(top_k=1), PLAIN, experts=4)
    operands["router"][:] = operands["router"][1]
    found = check_block(operands, attrs, skip=("router",))
    assert found["down"][0].any() and not found["down"][1:].any()


def test_nothing_but_the_choice_is_saved_as_integers_and_it_is_saved() -> None:
    operands, attrs = block(np.random.default_rng(0), routing(), PLAIN)
    integers = sorted(str(t) for t in saved(joint(operands, attrs)).values() if t.dtype.is_int)
    assert integers == ["i32[4, 3]", "i32[4, 3]", "i32[8]"]
