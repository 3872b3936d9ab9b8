"""Gradients that ops declare, run by the evaluator and compared with central differences of their references in f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from moec.eval import run
from moec.ir.graph import Graph, Module, Value
from moec.ir.types import BOOL, F32, I32, DType, TensorType
from moec.ops import OPS
from moec.ops.build import make_node
from moec.ops.tape import Tape
from moec.ops.verify import verify

Array = np.ndarray
STEP = 1e-5


def type_of(array: Array, floats: DType) -> TensorType:
    """The type of an operand that holds ``array``; floats are of ``floats``."""
    dtype = {"f": floats, "V": floats, "i": I32, "b": BOOL}[array.dtype.kind]
    return TensorType(dtype, array.shape)


def gradient_module(
    op: str,
    operands: Sequence[Array | None],
    attrs: dict[str, Any],
    floats: DType = F32,
    only: Sequence[int] | None = None,
    wide: DType | None = None,
) -> Module:
    """Inputs x0, x1, ... and dy0, ... for float results; outputs y0, ... and g0, ... as the op's ``grad`` gives them.

    ``only`` names the operands whose gradient is wanted (all float ones), ``wide`` the dtype that it is wanted in.
    """
    graph = Graph("main")
    types = [None if a is None else type_of(a, floats) for a in operands]
    given = [None if t is None else graph.add_input(f"x{i}", t) for i, t in enumerate(types)]
    node = graph.insert(make_node(op, list(given), attrs), None)
    dys: list[Value | None] = []
    for i, result in enumerate(node.results):
        wanted = result.type.dtype.is_float and not (op == "attention_stats" and i > 0)
        dys.append(graph.add_input(f"dy{i}", result.type) if wanted else None)
    tape = Tape(graph)
    wants = [t is not None and t.dtype.is_float for t in types]
    tape.wants = wants if only is None else [w and i in only for i, w in enumerate(wants)]
    tape.dtypes = [(wide or t.dtype) if w and t is not None else None for t, w in zip(types, tape.wants, strict=True)]
    grad = OPS[op].grad
    assert grad is not None, f"{op} declares no gradient"
    found = grad(tape, node, *dys)
    assert len(found) == len(operands)
    gradients = {f"g{i}": g for i, g in enumerate(found) if g is not None and tape.wanted(i)}
    assert len(gradients) == sum(tape.wants), f"{op}: a wanted gradient is missing"
    for i, (g, t) in enumerate(zip(found, types, strict=True)):
        if g is not None and t is not None and tape.wanted(i):
            assert g.type == TensorType(tape.dtype(i), t.dims), f"gradient {i} is {g.type}, the operand {t}"
    outputs = {**{f"y{i}": r for i, r in enumerate(node.results)}, **gradients}
    graph.set_outputs(list(outputs.values()), list(outputs))
    module = Module()
    module.add(graph)
    verify(module)
    return module


def feeds_of(module: Module, operands: Sequence[Array | None], rng: np.random.Generator) -> dict[str, Array]:
    """The operands by name, and random gradients of the results, in the dtypes that the module declares."""
    feeds = {}
    for v in module.main.inputs:
        raw = operands[int(v.name[1:])] if v.name[0] == "x" else rng.standard_normal([int(str(d)) for d in v.type.dims])
        feeds[v.name] = np.asarray(raw).astype(v.type.dtype.carrier)
    return feeds


def differences(f: Callable[[], float], x: Array) -> Array:
    """Central differences of ``f`` by each element of ``x``, which it reads."""
    found = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        held = x[at]
        x[at] = held + STEP
        high = f()
        x[at] = held - STEP
        found[at] = (high - f()) / (2 * STEP)
        x[at] = held
    return found


def check_gradients(
    op: str,
    operands: Sequence[Array | None],
    attrs: dict[str, Any],
    seed: int = 0,
    tolerance: float = 1e-7,
    reference: Callable[..., Any] | None = None,
    skip: Sequence[int] = (),
) -> dict[str, Array]:
    """Assert that every gradient equals the differences to ``tolerance`` of its largest element; the gradients.

    ``reference`` stands in for the op's own where that is not smooth there; operands of ``skip`` are not asked for.
    """
    wanted = [i for i, a in enumerate(operands) if a is not None and a.dtype.kind == "f" and i not in skip]
    module = gradient_module(op, operands, attrs, only=wanted)
    rng = np.random.default_rng(seed)
    feeds = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in feeds_of(module, operands, rng).items()}
    got = run(module, feeds, fp64=True)
    full = OPS[op].complete(attrs)
    xs = [None if a is None else feeds[f"x{i}"] for i, a in enumerate(operands)]
    dys = {int(n[2:]): a for n, a in feeds.items() if n.startswith("dy")}

    def loss() -> float:
        results = (reference or OPS[op].ref)(*xs, **full)
        results = results if isinstance(results, tuple) else (results,)
        return float(sum(np.sum(dy * results[i]) for i, dy in dys.items()))

    for i in wanted:
        x = xs[i]
        assert x is not None
        expected = differences(loss, x)
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        np.testing.assert_allclose(got[f"g{i}"], expected, rtol=0, atol=tolerance * scale, err_msg=f"{op} operand {i}")
    return {n: a for n, a in got.items() if n[0] == "g"}
