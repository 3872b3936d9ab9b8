"""Joint graphs compared with central differences of their forward, everything in f64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moec.autodiff import PLAIN, Options, differentiate, saved_values
from moec.eval import run
from moec.ir.graph import Graph, Module
from moec.ir.symbol import Expr, evaluate, sym
from moec.ir.text import parse_module, print_module
from moec.ir.types import BOOL, F32, I64, DType, TensorType
from moec.ops.build import make_node
from moec.ops.verify import verify

Array = np.ndarray
STEP = 1e-6
SIZES = {"T": 5, "S": 7}
"""Sizes that stand as symbols in a symbolic case; no other dim of such a case has them."""


@dataclass(frozen=True)
class Case:
    """One op on arrays. Float operands are differentiated for, those in ``skip`` apart."""

    op: str
    operands: Sequence[Array | None]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    skip: tuple[int, ...] = ()


def module_of(case: Case, symbolic: bool = False, floats: DType = F32) -> Module:
    """The op as a module of inputs x0, x1, ... and outputs y0, ...; sizes of ``SIZES`` as symbols if asked."""
    graph = Graph("main")
    names = {n: sym(s) for s, n in SIZES.items()} if symbolic else {}
    env = dict(SIZES)
    values = []
    for i, a in enumerate(case.operands):
        if a is None:
            values.append(None)
            continue
        dtype = {"f": floats, "i": I64, "b": BOOL}[a.dtype.kind]
        values.append(graph.add_input(f"x{i}", TensorType(dtype, tuple(names.get(n, n) for n in a.shape))))
    attrs = dict(case.attrs) if symbolic else {k: _numbers(v, env) for k, v in case.attrs.items()}
    node = graph.insert(make_node(case.op, values, attrs), None)
    graph.set_outputs(node.results, [f"y{i}" for i in range(len(node.results))])
    module = Module()
    module.add(graph)
    verify(module)
    return module


def _numbers(value: Any, env: Mapping[str, int]) -> Any:
    if isinstance(value, Expr):
        return evaluate(value, env)
    return tuple(_numbers(v, env) for v in value) if isinstance(value, tuple) else value


def copy(module: Module) -> Module:
    """The module again, with its tensors."""
    from moec import store

    return parse_module(print_module(module), store=store.tensors_of([module]))


def joint(module: Module, options: Options = PLAIN) -> Module:
    """The joint graph of a copy, verified."""
    made = differentiate(copy(module), options)
    verify(made)
    return made


def check_case(case: Case, symbolic: bool = False, seed: int = 0, tolerance: float = 1e-6) -> dict[str, Array]:
    """Assert that the gradients of a case equal central differences; the joint graph's outputs."""
    module = module_of(case, symbolic)
    inputs = {f"x{i}": a for i, a in enumerate(case.operands) if a is not None}
    wrt = [n for n, a in inputs.items() if a.dtype.kind == "f" and int(n[1:]) not in case.skip]
    return check_gradients(module, inputs, {}, wrt, seed, tolerance, sizes=SIZES)


def check_gradients(
    module: Module,
    inputs: Mapping[str, Array],
    weights: Mapping[str, Array],
    wrt: Sequence[str],
    seed: int = 0,
    tolerance: float = 1e-6,
    directions: int = 0,
    options: Options | None = None,
    step: float = STEP,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """Assert that the gradient of each name in ``wrt`` equals central differences of the loss, element by element, or
    along random ``directions`` where that is not 0. The loss is the scalar that ``options`` names, else the sum of the
    outputs times random numbers. The joint graph's outputs.
    """
    made = joint(module, options or Options(wrt=tuple(wrt)))
    rng = np.random.default_rng(seed)
    given = {**inputs, **weights}
    shapes = {n: a.shape for n, a in run(module, inputs, weights, fp64=True, sizes=sizes).items()}
    hooks = [v.name for v in made.main.inputs if v.name not in inputs]
    dys = {n: rng.standard_normal(shapes[n.removeprefix("d_")]) for n in hooks}
    got = run(made, {**inputs, **dys}, weights, fp64=True, sizes=sizes)
    losses = [n for n in (options.loss if options is not None else ()) if f"d_{n}" not in dys]
    losses = losses or ([] if dys else [n for n, s in shapes.items() if np.prod(s) == 1])

    def loss(at: Mapping[str, Array]) -> float:
        out = run(module, {n: at[n] for n in inputs}, {n: at[n] for n in weights}, fp64=True, sizes=sizes)
        total = sum(float(np.sum(out[n.removeprefix("d_")] * dy)) for n, dy in dys.items())
        return total + sum(float(np.sum(out[n])) for n in losses)

    for name in wrt:
        gradient, x = got[f"d_{name}"], np.asarray(given[name], np.float64)
        assert gradient.shape == x.shape, name
        for what, direction in _directions(x, directions, rng):
            expected = _difference(loss, given, name, x, direction, step)
            actual = float(np.sum(gradient * direction))
            scale = max(1.0, abs(expected))
            assert abs(actual - expected) <= tolerance * scale, f"{name} {what}: {actual} and not {expected}"
    return got


def _directions(x: Array, count: int, rng: np.random.Generator) -> list[tuple[str, Array]]:
    if count:
        found = [rng.standard_normal(x.shape) for _ in range(count)]
        return [(f"direction {i}", d / max(1.0, float(np.linalg.norm(d)))) for i, d in enumerate(found)]
    units = []
    for at in np.ndindex(x.shape):
        unit = np.zeros(x.shape)
        unit[at] = 1.0
        units.append((str(at), unit))
    return units


def _difference(
    loss: Callable[[Mapping[str, Array]], float],
    given: Mapping[str, Array],
    name: str,
    x: Array,
    direction: Array,
    step: float,
) -> float:
    above, below = (loss({**given, name: x + s * step * direction}) for s in (1, -1))
    return (above - below) / (2 * step)


def rng_arrays(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Normal numbers, always the same, for each name."""
    rng = np.random.default_rng(7)
    return {n: rng.standard_normal(s) for n, s in shapes.items()}


def saves(module: Module) -> list[str]:
    """What a joint graph saves, as name: type."""
    return [f"{s.name}: {s.type}" for s in saved_values(module)]
