"""Lowering of tensors with two of four elements: planes of elements, one vector kernel, planes put together again."""

from __future__ import annotations

from collections.abc import Sequence

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.assemble import Job, Sink, Source, assemble
from moec.codegen.kernels.vector.pairs24 import keep_two, split, spread_two
from moec.codegen.kernels.vector.values import Val, Values
from moec.codegen.lower.base import RULES, Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes, numel
from moec.codegen.scalar import binary
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Graph, Node
from moec.ir.symbol import Dim, exact_div
from moec.ir.types import DType, TensorType
from moec.ops.build import Builder

FLOATS = ("f32", "f16", "bf16")


def _groups(node: Node, dtype: DType, elements: Dim, each: int) -> Dim:
    """How many bytes of places there are: one for ``each`` elements."""
    count = exact_div(elements, each)
    if dtype.name not in FLOATS or count is None:
        what = f"{node.op} of {dtype.name} has no kernel"
        raise NoKernel(Problem(what, where(node), f"{', '.join(FLOATS)} have one"))
    return count


def _turned(cx: Lowering, node: Node, tensor: str, dtype: DType, dims: Sequence[Dim]) -> str:
    """A buffer that holds ``tensor``, of two dimensions, with these exchanged."""
    graph = Graph(node.op)
    given = graph.add_input("x", TensorType(dtype, tuple(dims)))
    cx.stored(given, tensor)
    made = Builder(graph, None, node.origin).transpose(given, perm=(1, 0))
    RULES["transpose"](cx, made.producer)
    return cx.tensor(made)


@lowering("sparse24")
def sparse24(cx: Lowering, node: Node) -> None:
    x = node.operand(0)
    kind = x.type.dtype
    m = _groups(node, kind, numel(x.type.dims), 8)
    name = device_dtype(kind)
    k, v = KernelBuilder("sparse24", "aiv", cx.capacities), Values()
    sizes = Sizes(k, cx)
    count = sizes.of(m, "groups")
    planes = k.gm("planes", name, (binary("*", 8, count),), "in")
    kept = k.gm("kept", name, (binary("*", 4, count),), "out")
    places = k.gm("places", "u8", (count,), "out")
    raw = [v.input("full", name) for _ in range(8)]
    sources = tuple(Source(e, planes, binary("*", i, count)) for i, e in enumerate(raw))
    wide = [v.cast(e, "f32") for e in raw]
    halves = [keep_two(v, wide[:4]), keep_two(v, wide[4:])]
    chosen = [e for low, high, _ in halves for e in (low, high)]
    code = v.add(halves[0][2], v.scalar("Muls", halves[1][2], 16.0))
    sinks = [Sink(v.cast(e, name), kept, binary("*", i, count)) for i, e in enumerate(chosen)]
    sinks.append(Sink(v.cast(v.cast(code, "f16"), "u8"), places))
    blocks = assemble(Job(k, v, 1, count, 2**40, sources, tuple(sinks)))
    values = cx.scratch("kept_planes", name, (4, m))
    ends = {"planes": _turned(cx, node, cx.tensor(x), kind, (m, 8)), "kept": values, "places": cx.result(node, 1)}
    cx.launch(node, k.finish(blocks), ends, sizes.given)
    cx.stored(node.results[0], _turned(cx, node, values, kind, (4, m)))


@lowering("dense24")
def dense24(cx: Lowering, node: Node) -> None:
    x, places = node.operand(0), node.operand(1)
    kind = x.type.dtype
    m = _groups(node, kind, numel(x.type.dims), 4)
    name = device_dtype(kind)
    k, v = KernelBuilder("dense24", "aiv", cx.capacities), Values()
    sizes = Sizes(k, cx)
    count = sizes.of(m, "groups")
    kept = k.gm("kept", name, (binary("*", 4, count),), "in")
    codes = k.gm("places", "u8", (count,), "in")
    planes = k.gm("planes", name, (binary("*", 8, count),), "out")
    raw, byte = [v.input("full", name) for _ in range(4)], v.input("full", "u8")
    sources = (*(Source(e, kept, binary("*", i, count)) for i, e in enumerate(raw)), Source(byte, codes))
    wide = [v.cast(e, "f32") for e in raw]
    later, earlier = split(v, v.cast(v.cast(byte, "f16"), "f32"), 16.0)
    made: list[Val] = [*spread_two(v, wide[0], wide[1], earlier), *spread_two(v, wide[2], wide[3], later)]
    sinks = tuple(Sink(v.cast(e, name), planes, binary("*", i, count)) for i, e in enumerate(made))
    blocks = assemble(Job(k, v, 1, count, 2**40, sources, sinks))
    out = cx.scratch("element_planes", name, (8, m))
    ends = {"kept": _turned(cx, node, cx.tensor(x), kind, (m, 4)), "places": cx.tensor(places), "planes": out}
    cx.launch(node, k.finish(blocks), ends, sizes.given)
    cx.stored(node.result, _turned(cx, node, out, kind, (8, m)))
