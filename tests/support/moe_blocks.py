"""Whole MoE blocks of small sizes: their joint graphs, and the check of those against differences of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from op_gradients import differences

from moec.autodiff import differentiate
from moec.eval import run
from moec.ir.graph import Graph, Module
from moec.ir.types import F32, DType, TensorType
from moec.ops import OPS
from moec.ops.build import make_node
from moec.ops.verify import verify
from moec.passes.base import Context, Pass
from moec.passes.expand_moe import ExpandMoE

Array = np.ndarray
NAMES = [operand.name for operand in OPS["moe"].signature.operands]
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


def expanded(operands: dict[str, Array], attrs: dict[str, Any], dtype: DType = F32) -> Module:
    """The block as the steps that it is expanded into; every operand is an input."""
    graph = Graph("main")
    given = [graph.add_input(n, TensorType(dtype, operands[n].shape)) if n in operands else None for n in NAMES]
    node = graph.insert(make_node("moe", list(given), attrs), None)
    graph.set_outputs(node.results[:1], ["y"])
    module = Module()
    module.add(graph)
    ExpandMoE().run(module, Context())
    assert not [n for n in module.nodes() if n.op == "moe"]
    return module


def joint(
    operands: dict[str, Array],
    attrs: dict[str, Any],
    before: Sequence[Pass] = (),
    after: Sequence[Pass] = (),
    dtype: DType = F32,
) -> Module:
    """Forward and backward of the expanded block, with passes run before and after differentiation."""
    module = expanded(operands, attrs, dtype)
    for each in before:
        each.run(module, Context())
    differentiate(module)
    for each in after:
        each.run(module, Context())
    verify(module)
    return module


def saved(module: Module) -> dict[str, TensorType]:
    """What forward keeps for backward, by the name of its save."""
    return {n.attrs["name"]: n.result.type for n in module.main if n.op == "save"}


def check_block(
    operands: dict[str, Array],
    attrs: dict[str, Any],
    skip: tuple[str, ...] = ("score_bias",),
    before: Sequence[Pass] = (),
    after: Sequence[Pass] = (),
) -> dict[str, Array]:
    """Assert that the joint graph gives the reference's outputs and differences; the gradients by operand.

    The reference loops over experts and knows nothing of permutations, grouped products or the expansion.
    """
    module = joint(operands, attrs, before, after)
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
