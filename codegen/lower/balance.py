"""Lowering of balance_loss: each token's shares, their sums over the tokens, and one row of E numbers to a scalar."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector import functions as fn
from moec.codegen.kernels.vector.assemble import Job, Sink, Source, assemble
from moec.codegen.kernels.vector.values import Val, Values
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.reductions import combine
from moec.codegen.lower.sizes import Sizes
from moec.codegen.scalar import smax, smin
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

FLOATS = ("f32", "f16", "bf16")


@lowering("balance_loss")
def balance_loss(cx: Lowering, node: Node) -> None:
    logits = node.operand(0)
    experts = logits.type.dims[1]
    counts = node.operands[1] if len(node.operands) > 1 else None
    count_dtype = "i32" if counts is None else device_dtype(counts.type.dtype)
    if logits.type.dtype.name not in FLOATS or not isinstance(experts, int) or count_dtype not in ("i32", "i64"):
        what = f"balance_loss of {logits.type} has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16 and bf16 with a known number of experts have one"))
    tokens = logits.type.dims[0]
    shares, sums = cx.scratch("shares", "f32", (tokens, experts)), cx.scratch("share_sums", "f32", (experts,))
    _shares(cx, node, shares)
    combine(cx, node, "sum", (shares, "f32"), (sums, "f32"), (1, tokens, experts))
    k, v = KernelBuilder("balance_loss", "aiv", cx.capacities), Values()
    sizes = Sizes(k, cx)
    many = sizes.of(tokens, "tokens")
    total = v.input("full", "f32")
    mean = v.div(total, smax(many, 1))
    sources, operands = [Source(total, k.gm("sums", "f32", (1, experts), "in"))], {"sums": sums}
    if counts is None:
        off = v.scalar("Adds", mean, -1.0 / experts)
        loss = v.row_reduce("Sum", v.mul(off, off))
    else:
        given = v.input("full", count_dtype)
        sources.append(Source(given, k.gm("counts", count_dtype, (1, experts), "in", "counts")))
        operands["counts"] = cx.tensor(counts)
        loss = _load(v, given, mean)
    factor = node.attrs["coefficient"] * experts
    loss = v.scalar("Muls", v.scalar("Muls", loss, factor), smin(many, 1))  # of no tokens it is 0
    sink = Sink(loss, k.gm("y", "f32", (1,), "out"))
    blocks = assemble(Job(k, v, 1, experts, experts, tuple(sources), (sink,)))
    cx.launch(node, k.finish(blocks), {**operands, "y": cx.result(node)}, sizes.given)


def _load(v: Values, counts: Val, mean: Val) -> Val:
    """Sum of f P, f the experts' shares of the token-slots."""
    whole = v.cast(v.cast(counts, "i32", "NONE" if counts.dtype == "i64" else ""), "f32", "RINT")
    slots = v.scalar("Maxs", v.row_reduce("Sum", whole), 1.0)
    return v.div(v.row_reduce("Sum", v.mul(whole, mean)), slots)


def _shares(cx: Lowering, node: Node, target: str) -> None:
    """Scores of each token that sum to 1."""
    logits = node.operand(0)
    tokens, experts = logits.type.dims
    dtype = device_dtype(logits.type.dtype)
    k, v = KernelBuilder("balance_shares", "aiv", cx.capacities), Values()
    sizes = Sizes(k, cx)
    rows = sizes.of(tokens, "tokens")
    assert isinstance(experts, int)
    raw = v.input("full", dtype)
    x = v.cast(raw, "f32")
    if node.attrs["score"] == "softmax":
        made = fn.softmax(v, x)
    else:
        scores = fn.sigmoid(v, x)
        made = v.div(scores, v.row_reduce("Sum", scores))
    source, sink = (
        Source(raw, k.gm("x", dtype, (rows, experts), "in")),
        Sink(made, k.gm("y", "f32", (rows, experts), "out")),
    )
    blocks = assemble(Job(k, v, rows, experts, experts, (source,), (sink,)))
    cx.launch(node, k.finish(blocks), {"x": cx.tensor(logits), "y": target}, sizes.given)
