"""Random well-typed layer IR for property tests: ``modules()`` is the strategy, ``inputs_of`` gives a module numbers.

Every module verifies, and evaluates for all sizes within its symbols' bounds: indices are in range, integer divisors
are not zero. A failing test shows the module's text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from graph_steps import FLOATS, MAKERS, Draw, Maker, along_axis, binary, layout, reduce, unary, with_attributes
from hypothesis import note
from hypothesis import strategies as st

from moec.ir.graph import Module, Origin, Source
from moec.ir.symbol import Dim, evaluate, sym
from moec.ir.text import print_module
from moec.ir.types import I64, DType, TensorType


def call(m: Maker) -> Any:
    """A call of a function drawn for the types of one or two values; the function may be called again."""
    arguments = [m.float(1)] + ([m.numeric()] if m.flag() else [])
    name = f"f{len(m.module.functions)}"
    inner = Maker(m.draw, m.module, name, m.floats)
    inner.pool = [inner.graph.add_input(f"a{i}", v.type) for i, v in enumerate(arguments)]
    elementwise = m.flag()
    for _ in range(m.draw(st.integers(1, 3))):
        extend(inner, (unary, binary, with_attributes) if elementwise else (unary, binary, reduce, along_axis, layout))
    inner.graph.set_outputs([inner.pool[-1]], ["r"])
    m.b.call(m.module, name, *arguments, op="fused" if elementwise else "call")
    return m.b.call(m.module, name, *arguments, op="call")


def extend(m: Maker, makers: tuple[Callable[[Maker], Any], ...]) -> None:
    """Add one step, if one of the makers finds operands for it."""
    m.b.origin = Origin((Source("drawn.moe", len(m.graph) + 1, ""),))
    try:
        made = m.one_of(makers)(m)
    except StopIteration:
        return
    m.keep(*(made if isinstance(made, tuple) else (made,)))


@st.composite
def modules(
    draw: Draw,
    max_steps: int = 10,
    floats: tuple[DType, ...] = FLOATS,
    calls: bool = True,
    makers: tuple[Callable[[Maker], Any], ...] = MAKERS,
) -> Module:
    """A module whose ``main`` has up to ``max_steps`` drawn steps; floats of the given dtypes only.

    ``makers`` restricts the steps to those given (of ``MAKERS``); ``calls`` adds calls of drawn functions.
    """
    module = Module()
    for name in draw(st.sampled_from([(), ("T",), ("T", "S")])):
        module.symbols[name] = (draw(st.sampled_from([1, 2])), draw(st.sampled_from([2, 5])))
    m = Maker(draw, module, "main", floats)
    sizes: list[Dim] = [1, 3, 4, 6, *map(sym, module.symbols)]
    for i in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.sampled_from(sizes), min_size=1 if i else 2, max_size=3)))
        m.keep(
            m.graph.add_input(f"x{i}", TensorType(draw(st.sampled_from([*floats, I64] if i else list(floats))), shape))
        )
    missing = [s for s in module.symbols if all(str(d) != s for v in m.graph.inputs for d in v.type.dims)]
    if missing:
        m.keep(m.graph.add_input("sizes", TensorType(floats[0], tuple(map(sym, missing)))))
    for _ in range(draw(st.integers(1, max_steps))):
        extend(m, (*makers, call) if calls else makers)
    made = [v for n in m.graph for v in n.results if not v.uses] or m.pool[-1:]
    outputs = made[: draw(st.integers(1, len(made)))]
    m.graph.set_outputs(outputs, [f"y{i}" for i in range(len(outputs))])
    for graph in module.functions.values():
        for i, v in enumerate(v for n in graph for v in n.results):
            v.name = draw(st.sampled_from(["", "", f"v{i}", "h", "5", "a b", "none", 'x"\\y', "é", "v.1"]))
    note(print_module(module))
    return module


def sizes_of(module: Module, seed: int) -> dict[str, int]:
    """A size within its bounds for every symbol that inputs bind."""
    rng = np.random.default_rng(seed)
    names = {s for v in module.main.inputs for d in v.type.dims for s in [str(d)] if s in module.symbols}
    return {s: int(rng.integers(low, high + 1)) for s, (low, high) in module.symbols.items() if s in names}


def inputs_of(module: Module, seed: int) -> dict[str, np.ndarray]:
    """Random inputs by name: floats near 1, integers in [-2, 4], of random sizes within bounds."""
    env, rng = sizes_of(module, seed), np.random.default_rng(seed)
    arrays = {}
    for v in module.main.inputs:
        shape = [evaluate(d, env) for d in v.type.dims]
        drawn = rng.standard_normal(shape) if v.type.dtype.is_float else rng.integers(-2, 5, shape)
        arrays[v.name] = drawn.astype(v.type.dtype.carrier)
    return arrays
