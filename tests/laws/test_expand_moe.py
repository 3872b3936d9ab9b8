"""expand-moe against the block's own reference: every attribute, 16 and 32 bit, no token, one token, several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from moe_attrs import ACTIVATION, DROPLESS, ROUTING

from moec import eval as reference
from moec.autodiff import differentiate
from moec.ir.graph import Graph, Module
from moec.ir.symbol import Dim, sym
from moec.ir.types import BF16, F32, DType, TensorType
from moec.ops.build import Builder
from moec.ops.registry import opdef
from moec.passes.base import PassManager

E, H, INNER, T = 8, 16, 8, sym("T")
PLAIN = {**ROUTING, **ACTIVATION, **DROPLESS, "top_k": 2, "weights_dtype": F32, "weights_on": "output"}
VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({}, ""),
    "sigmoid, bias, shared": ({"score": "sigmoid", "scale": 2.5}, "score_bias shared_gate_up shared_down"),
    "gated shared": ({}, "shared_gate_up shared_down shared_gate"),
    "groups": ({"groups": 4, "group_top_k": 2, "group_score": "sum2", "group_mask": "zero"}, ""),
    "groups by max": ({"groups": 2, "group_top_k": 1, "group_score": "max", "group_mask": "minus_inf"}, ""),
    "after top-k": ({"score_order": "after_topk", "renormalize": False}, ""),
    "eps": ({"renormalize_eps": 0.5}, ""),
    "on input": ({"weights_on": "input"}, ""),
    "on activation": ({"weights_on": "activation"}, ""),
    "biases": ({"weights_on": "activation"}, "router_bias gate_up_bias down_bias"),
    "no glu": ({"glu": "none", "activation": "relu"}, "shared_gate_up shared_down"),
    "gpt-oss": (
        {"glu": "interleaved", "alpha": 1.702, "limit": 0.5, "up_offset": 1.0},
        "gate_up_bias down_bias router_bias",
    ),
    "top-1": ({"top_k": 1}, ""),
    "all experts": ({"top_k": 8}, ""),
}


def block(
    changed: dict[str, Any], given: str, dtype: DType, router: DType, lead: tuple[Dim, ...] = (T,), experts: Dim = E
) -> Module:
    """A module of one ``moe`` node whose operands are inputs."""
    attrs = {**PLAIN, **changed, "router_dtype": router}
    wide = INNER if attrs["glu"] == "none" else 2 * INNER
    shapes: dict[str, tuple[Dim, ...]] = {
        "x": (*lead, H),
        "router": (experts, H),
        "gate_up": (experts, wide, H),
        "down": (experts, H, INNER),
        "router_bias": (experts,),
        "score_bias": (experts,),
        "gate_up_bias": (experts, wide),
        "down_bias": (experts, H),
        "shared_gate_up": (wide, H),
        "shared_down": (H, INNER),
        "shared_gate": (1, H),
    }
    assert list(shapes) == [o.name for o in opdef("moe").signature.operands]
    module = Module()
    graph = module.add(Graph("main"))
    required = [o.name for o in opdef("moe").signature.operands if not o.optional]
    types = {
        n: TensorType(router if n in ("router", "router_bias", "score_bias") else dtype, s) for n, s in shapes.items()
    }
    operands = [graph.add_input(n, types[n]) if n in required or n in given.split() else None for n in shapes]
    graph.set_outputs(Builder(graph).moe(*operands, **attrs), ["y", "logits"])
    return module


def numbers(module: Module, tokens: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(tokens)
    made = {}
    for v in module.main.inputs:
        shape = tuple(d if isinstance(d, int) else tokens for d in v.type.dims)
        made[v.name] = (rng.normal(size=shape) * 0.5).astype(v.type.dtype.carrier)
    return made


@pytest.mark.parametrize("dtypes", [(F32, F32), (BF16, BF16), (BF16, F32)], ids=lambda p: f"{p[0]}-router-{p[1]}")
@pytest.mark.parametrize("variant", VARIANTS)
def test_expansion_is_the_block(variant: str, dtypes: tuple[DType, DType]) -> None:
    changed, given = VARIANTS[variant]
    before, after = (block(changed, given, *dtypes) for _ in range(2))
    PassManager.parse("expand-moe").run(after)
    assert not [n for n in after.nodes() if n.op == "moe"]
    for tokens in (0, 1, 5):
        inputs = numbers(before, tokens)
        for fp64 in (True, False):
            old, new = (reference.run(m, inputs, fp64=fp64) for m in (before, after))
            allowed = 1e-12 if fp64 else (2e-6 if dtypes[0] is F32 else 2**-6)
            for name in ("y", "logits"):
                assert old[name].shape == new[name].shape
                a, b = old[name].astype(np.float64), new[name].astype(np.float64)
                scale = np.max(np.abs(a), initial=1.0)
                assert np.max(np.abs(a - b), initial=0.0) <= allowed * scale, (name, tokens, fp64)


def test_leading_dimensions_are_restored() -> None:
    module = block({}, "", F32, F32, (2, sym("S")))
    before = block({}, "", F32, F32, (2, sym("S")))
    PassManager.parse("expand-moe,fuse-vector").run(module)
    inputs = numbers(before, 3)
    old, new = (reference.run(m, inputs, fp64=True) for m in (before, module))
    assert new["y"].shape == (2, 3, H) and np.allclose(old["y"], new["y"], rtol=0, atol=1e-12)


CAPACITIES: dict[str, dict[str, Any]] = {
    "of tokens": {"capacity_scope": "tokens", "dropped": "zero"},
    "of sequences": {"capacity_scope": "sequence", "dropped": "zero"},
    "input kept": {"capacity_scope": "tokens", "dropped": "input"},
    "top-1, input kept, of sequences": {"capacity_scope": "sequence", "dropped": "input", "top_k": 1},
}


@pytest.mark.parametrize("dtypes", [(F32, F32), (BF16, F32)], ids=lambda p: f"{p[0]}-router-{p[1]}")
@pytest.mark.parametrize("where", ["output", "input", "activation"])
@pytest.mark.parametrize("kind", CAPACITIES)
def test_a_block_with_a_capacity_is_expanded(kind: str, where: str, dtypes: tuple[DType, DType]) -> None:
    """Static sizes, nothing on the host, and the block's own numbers where the capacity binds and where not."""
    for capacity, batch in ((0, 2), (1, 2), (3, 2), (2, 1), (100, 2)):
        change = {**CAPACITIES[kind], "capacity": capacity, "weights_on": where}
        lead = (batch, sym("S"))
        before, after = (block(change, "gate_up_bias down_bias", *dtypes, lead) for _ in range(2))
        PassManager.parse("expand-moe").run(after)
        assert list(after.symbols) == list(before.symbols)
        assert not {n.op for n in after.main} & {"to_host", "host", "call", "bind_size", "nonzero"}
        for length in (0, 1, 7):
            inputs = numbers(before, length)
            for fp64 in (True, False):
                old, new = (reference.run(m, inputs, fp64=fp64)["y"].astype(np.float64) for m in (before, after))
                allowed = 1e-12 if fp64 else (2e-6 if dtypes[0] is F32 else 2**-6)
                assert np.max(np.abs(old - new), initial=0.0) <= allowed * np.max(np.abs(old), initial=1.0)


def test_a_capacity_of_symbolic_size() -> None:
    change = {"capacity": sym("S") // 2, "capacity_scope": "sequence", "dropped": "zero"}
    before, after = (block(change, "", F32, F32, (2, sym("S"))) for _ in range(2))
    PassManager.parse("expand-moe").run(after)
    inputs = numbers(before, 6)
    old, new = (reference.run(m, inputs, fp64=True)["y"] for m in (before, after))
    assert np.allclose(old, new, rtol=0, atol=1e-12)
    free = reference.run(block({}, "", F32, F32, (2, sym("S"))), inputs, fp64=True)["y"]
    assert not np.allclose(old, free)


@pytest.mark.parametrize("scope", ["tokens", "sequence"])
def test_a_number_of_experts_that_is_a_size_of_the_run(scope: str) -> None:
    change = {"capacity": 1, "capacity_scope": scope, "dropped": "input"}
    before, after = (block(change, "", F32, F32, (2, sym("S")), sym("N")) for _ in range(2))
    PassManager.parse("expand-moe").run(after)
    inputs = numbers(before, 5)
    old, new = (reference.run(m, inputs, fp64=True)["y"] for m in (before, after))
    assert np.allclose(old, new, rtol=0, atol=1e-12)


@pytest.mark.parametrize("where", ["output", "input"])
@pytest.mark.parametrize("kind", CAPACITIES)
def test_gradients_of_a_block_with_a_capacity(kind: str, where: str) -> None:
    """Of the expansion, against differences of the block's own reference in a random direction."""
    change = {**CAPACITIES[kind], "capacity": 1, "weights_on": where}
    before, joint = (block(change, "gate_up_bias down_bias", F32, F32, (2, sym("S"))) for _ in range(2))
    for module in (before, joint):
        module.main.set_outputs([module.main.outputs[0]], ["y"])
    PassManager.parse("expand-moe,dce").run(joint)
    differentiate(joint)
    inputs = {name: array.astype(np.float64) for name, array in numbers(before, 3).items()}
    rng = np.random.default_rng(0)
    dy = rng.standard_normal((2, 3, H))
    gradients = reference.run(joint, {**inputs, "d_y": dy}, fp64=True)
    for name in ("x", "router", "gate_up", "down", "down_bias"):
        step = 1e-6 * rng.standard_normal(inputs[name].shape)
        up, down = (reference.run(before, {**inputs, name: inputs[name] + s * step}, fp64=True)["y"] for s in (1, -1))
        difference = float(((up - down) * dy).sum()) / 2
        assert abs(difference - float((gradients[f"d_{name}"] * step).sum())) <= 1e-7 * np.abs(step).max() * 100, name
