"""Lowering of slice, concat, transpose, pad, expand and tile: dimensions are folded, then one strided copy a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import ITEMSIZE, GmTensor
from moec.codegen.kernels.vector.moves import Axis, Move, Rows, Turned, emit_moves
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes, numel, strides
from moec.codegen.lower.vector import single
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim, dmin

NO_FILL = ("i8", "u64")
"""Types that no instruction fills memory with."""
TOGETHER = 3
"""Parts of a concatenation that one kernel copies where sizes are run-time arguments: each has flags of its own, and a
pipe pair has six."""


@dataclass(frozen=True)
class Step:
    """A dimension of y: its size, and how far its steps are apart in the source (0: the same again) and in y."""

    size: Dim
    src: Dim
    dst: Dim
    maybe: bool = False
    """Whether ``src`` may turn out 0 when run."""


@dataclass(frozen=True)
class Part:
    """What of y comes from ``value`` (None: the fill value), dimensions from the outermost of y."""

    value: Value | None
    steps: tuple[Step, ...]
    src_at: Dim = 0
    dst_at: Dim = 0


def folded(steps: Sequence[Step]) -> list[Step]:
    """Dimensions of one element left out, neighbours that run on joined."""
    out: list[Step] = []
    for s in steps:
        if s.size == 1:
            continue
        if out and not (s.maybe or out[-1].maybe):
            a = out[-1]
            if a.src == s.src * s.size and a.dst == s.dst * s.size:
                out[-1] = Step(a.size * s.size, s.src, s.dst)
                continue
        out.append(s)
    return out


def _rows_of(cx: Lowering, steps: Sequence[Step]) -> int | None:
    """The dimension to go down in one copy: the longest, if there is one that does not repeat."""
    for repeated in (False, True):
        fit = [i for i, s in enumerate(steps) if not s.maybe and (s.src == 0) == repeated]
        if fit:
            return max(fit, key=lambda i: (cx.size(steps[i].size), i))
    return None


def _move(cx: Lowering, sizes: Sizes, sources: dict[Value, GmTensor], part: Part, itemsize: int) -> Move:
    steps = folded(part.steps)
    source = None if part.value is None else sources[part.value]

    def axis(s: Step) -> Axis:
        return Axis(sizes.of(s.size), sizes.of(s.src, "s"), sizes.of(s.dst, "s"))

    at = (sizes.of(part.src_at, "from"), sizes.of(part.dst_at, "to"))
    last = steps[-1] if steps else Step(1, 1, 1)
    if last.dst == 1 and last.src not in (0, 1) and not last.maybe and itemsize in (2, 4) and source is not None:
        along = [i for i, s in enumerate(steps[:-1]) if s.src == 1 and not s.maybe]
        if along:
            rest = tuple(axis(s) for i, s in enumerate(steps[:-1]) if i != along[0])
            return Turned(source, rest, axis(last), axis(steps[along[0]]), *at)
    cols: Dim = 1
    if steps and last.dst == 1 and (last.src == 1 or source is None) and not last.maybe:
        cols, steps = last.size, steps[:-1]
    chosen = _rows_of(cx, steps)
    outer = tuple(axis(s) for i, s in enumerate(steps) if i != chosen)
    rows = Axis(1, 0, 0) if chosen is None else axis(steps[chosen])
    if chosen is None:
        rows = Axis(1, 1, 1)
    return Rows(source, outer, rows, sizes.of(cols, "cols"), *at)


def move_kernel(
    cx: Lowering, node: Node, parts: Sequence[Part], fill: float = 0.0, target: str | None = None, count: Dim = 0
) -> None:
    """One kernel that makes the node's result of ``parts``, which must cover it; or a ``target`` of ``count`` elements
    of the dtype of what is moved."""
    made = node.result.type
    of = made.dtype if target is None else next(p.value for p in parts if p.value is not None).type.dtype
    dtype = device_dtype(of)
    if dtype in NO_FILL and any(p.value is None for p in parts):
        what = f"{node.op} that fills {of.name} has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16, bf16, integers of 16 and 32 bits, i64, u8 and bool have"))
    if fill != 0 and dtype in ("i64", "u8") and any(p.value is None for p in parts):
        what = f"{node.op} with {fill:g} of {of.name} has no kernel"
        raise NoKernel(Problem(what, where(node), "0 has one, and any number of f32, f16, bf16 and i32"))
    k = KernelBuilder(f"move_{node.op}", "aiv", cx.capacities)
    sizes = Sizes(k, cx)
    sources: dict[Value, GmTensor] = {}
    operands = {}
    for p in parts:
        if p.value is not None and p.value not in sources:
            t = k.gm(f"x{len(sources)}", dtype, (sizes.of(numel(p.value.type.dims), "elems"),), "in")
            sources[p.value] = t
            operands[t.name] = cx.tensor(p.value)
    elements = numel(made.dims) if target is None else count
    out = k.gm("y", dtype, (sizes.of(elements, "elems"),), "out")
    operands[out.name] = target or cx.result(node)
    moves = [_move(cx, sizes, sources, p, ITEMSIZE[dtype]) for p in parts]
    blocks = emit_moves(k, out, moves, fill)
    sizes.witness()
    cx.launch(node, k.finish(blocks), operands, sizes.given)


@lowering("slice")
def slice_(cx: Lowering, node: Node) -> None:
    x, a = node.operand(0), node.attrs
    own, axis = strides(x.type.dims), a["axis"]
    steps = tuple(
        Step(size, s * a["step"] if i == axis else s, d)
        for i, (size, s, d) in enumerate(zip(node.result.type.dims, own, strides(node.result.type.dims), strict=True))
    )
    move_kernel(cx, node, [Part(x, steps, own[axis] * a["start"])])


@lowering("transpose")
def transpose(cx: Lowering, node: Node) -> None:
    x, perm = node.operand(0), node.attrs["perm"]
    own, made = strides(x.type.dims), strides(node.result.type.dims)
    steps = tuple(Step(x.type.dims[p], own[p], d) for p, d in zip(perm, made, strict=True))
    move_kernel(cx, node, [Part(x, steps)])


@lowering("concat")
def concat(cx: Lowering, node: Node) -> None:
    axis, made = node.attrs["axis"], strides(node.result.type.dims)
    parts, at = [], 0
    for x in node.operands:
        assert x is not None
        steps = tuple(Step(*s) for s in zip(x.type.dims, strides(x.type.dims), made, strict=True))
        parts.append(Part(x, steps, 0, at * made[axis]))
        at = at + x.type.dims[axis]
    known = all(isinstance(d, int) for d in node.result.type.dims)
    together = len(parts) if known else TOGETHER
    for i in range(0, len(parts), together):
        move_kernel(cx, node, parts[i : i + together])


@lowering("pad")
def pad(cx: Lowering, node: Node) -> None:
    x, before, after = node.operand(0), node.attrs["before"], node.attrs["after"]
    dims, full, made = x.type.dims, node.result.type.dims, strides(node.result.type.dims)
    corner: Dim = 0
    parts = []
    for i, (b, a) in enumerate(zip(before, after, strict=True)):
        # beside dimension i: inside the earlier ones, over all of the later ones
        inner = (*dims[:i], 0, *full[i + 1 :])
        for size, at in ((b, corner), (a, corner + (b + dims[i]) * made[i])):
            if size != 0:
                steps = tuple(Step(size if j == i else d, made[j], made[j]) for j, d in enumerate(inner))
                parts.append(Part(None, steps, 0, at))
        corner = corner + b * made[i]
    steps = tuple(Step(*s) for s in zip(dims, strides(dims), made, strict=True))
    move_kernel(cx, node, [Part(x, steps, 0, corner), *parts], node.attrs["value"])


def permuted(cx: Lowering, node: Node, x: Value, perm: Sequence[int], target: str) -> None:
    """``target`` is x with its dimensions in the order ``perm``."""
    own = strides(x.type.dims)
    made = strides([x.type.dims[p] for p in perm])
    steps = tuple(Step(x.type.dims[p], own[p], d) for p, d in zip(perm, made, strict=True))
    move_kernel(cx, node, [Part(x, steps)], 0.0, target, numel(x.type.dims))


def repeated(x: Value, shape: Sequence[Dim]) -> tuple[Step, ...]:
    """x read as ``shape``, which it is broadcast to."""
    own, dims = strides(x.type.dims), x.type.dims
    lead = len(shape) - len(dims)
    steps = []
    for i, (size, d) in enumerate(zip(shape, strides(shape), strict=True)):
        src: Dim = 0
        maybe = False
        if i >= lead and dims[i - lead] != 1:
            src, maybe = own[i - lead], dims[i - lead] != size
            if maybe:
                src = src * dmin(1, dims[i - lead] - 1)  # 0 where the run finds a dimension of one
        steps.append(Step(size, src, d, maybe))
    return tuple(steps)


@lowering("expand")
def expand(cx: Lowering, node: Node) -> None:
    """Repeats inside rows are the vector unit's, where it computes with the dtype; rows are copied."""
    x, shape = node.operand(0), node.result.type.dims
    made = x.producer
    if made is not None and made.op == "constant" and x.type.numel() == 1:
        number = float(made.attrs["value"].numpy().reshape(-1)[0])
        if number == 0 or x.type.dtype.name not in ("i64", "bool"):
            steps = tuple(Step(size, 0, d) for size, d in zip(shape, strides(shape), strict=True))
            move_kernel(cx, node, [Part(None, steps)], number)
            return
    steps = repeated(x, shape)
    inside = folded(steps)
    if inside and inside[-1].src == 0 and x.type.dtype.name in ("f32", "f16", "bf16", "i32"):
        try:
            single(cx, node)
            return
        except NoKernel:  # a broadcast that is none of rows and columns is copied
            pass
    move_kernel(cx, node, [Part(x, steps)])


@lowering("tile")
def tile(cx: Lowering, node: Node) -> None:
    x, repeats = node.operand(0), node.attrs["repeats"]
    own, made = strides(x.type.dims), strides(node.result.type.dims)
    steps = []
    for r, size, s, d in zip(repeats, x.type.dims, own, made, strict=True):
        steps += [Step(r, 0, size * d), Step(size, s, d)]
    move_kernel(cx, node, [Part(x, tuple(steps))])
