"""Gradients of attention on cube and vector cores together (Dao et al., arXiv 2205.14135), without atomics.

Kernels walk over pairs of a tile of queries and a tile of keys, each keeping its sums in L0C from first to last:

    by keys     a group takes a tile of keys of one key head and walks over the queries of all heads that read it, in
                order: dv = sum of p^T dy, dk = sum of ds^T q
    by queries  a group takes a tile of queries of one head and walks over its keys: dq = sum of ds k

Where L0C does not hold dk and dv together (heads of 256), each has a kernel of its own.

For a pair the cube core computes scores q k^T and dy v^T into the workspace; the vector cores make of them
p = e^(score - max) / sum and ds = scale p (dy v^T - delta), delta the rows' sums of dy * y; the cube core multiplies
these while the vector cores have the next pair. Nothing is added by two cores, so results do not depend on their
order; computing scores twice costs two products of seven. Where all key heads share one rotary part, each head's part
of its gradient goes to the workspace in f32 and is summed afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Buffer, GmTensor, Kernel, LocalRef
from moec.codegen.kernels.attention import PROBS_READY, SCORES_READY, rows_that_see
from moec.codegen.kernels.attention_cube import L0, load, multiply, pad_to, write_out
from moec.codegen.kernels.attention_dscores import ScoreGradients
from moec.codegen.kernels.attention_packed import witness_data
from moec.codegen.kernels.attention_pairs import Outer, Pair, Walk
from moec.codegen.kernels.attention_panels import Inputs, Operands, Panel, declare_inputs, panel
from moec.codegen.kernels.attention_scores import Place
from moec.codegen.kernels.attention_tile import Attention, Sums, Tile
from moec.codegen.scalar import Arg, Scalar, Var, align, ceildiv, eq, smin


@dataclass(frozen=True, slots=True)
class Tensors:
    """What the kernel writes; what it does not is None."""

    dq: GmTensor | None
    dk: GmTensor | None
    dv: GmTensor | None
    dq_rope: GmTensor | None
    dk_rope: GmTensor | None
    scores: GmTensor
    dprobs: GmTensor | None
    probs: GmTensor | None
    dscores: GmTensor | None


class _Cube:
    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, x: Inputs, out: Tensors, walk: Walk, sums: Sums):
        self.k, self.a, self.t, self.out, self.walk = k, a, t, out, walk
        by_keys, d = sums.by_keys, a.dtype
        inner, wide = pad_to(a.inner, 16), pad_to(a.values, 16)
        self.of = Operands(k, a, t, x, (2, 1) if by_keys else (1, 2), (sums.dk, sums.dv, sums.dq))
        self.p = panel(k, "p1", d, t.rows, t.keys, 2, False, True) if sums.dv else None
        self.ds = panel(k, "ds1", d, t.rows, t.keys, 2, sums.dq, sums.dk) if sums.dprobs else None
        first, second = max(t.rows, t.keys), max(t.rows, t.keys, inner, wide)
        self.l0 = L0(
            k.buffer("L0A", "a0", d, first * t.depth, 2), k.buffer("L0B", "b0", d, second * t.depth, 2), t.depth
        )
        self.sum_v = k.buffer("L0C", "sumV", "f32", t.keys * wide) if sums.dv else None
        self.sum = k.buffer("L0C", "sum", "f32", (t.keys if by_keys else t.rows) * inner) if sums.dprobs else None

    def run(self) -> None:
        k, walk = self.k, self.walk
        with k.loop("t", k.core, walk.total, k.cores) as number:
            o = walk.outer(number)
            with k.if_(o.pairs > 0):
                one = Pair(o.batch, o.fixed, o.kv_head, o.row, o.rows, o.key, o.keys)
                if walk.by_keys:
                    self.of.load_keys(one, 0)
                else:
                    self.of.load_queries(one, 0)
                with k.loop("i", 0, o.pairs + 1) as i:
                    ping = k.slot(2, "tile")
                    with k.if_(i < o.pairs):
                        self._scores(walk.pair(o, i, ""), ping)
                    with k.if_(i > 0):
                        self._add(walk.pair(o, i - 1, "Before"), i, 1 - ping)
                self._write(o)

    def _scores(self, p: Pair, ping: Var) -> None:
        """Scores and dy v^T of a pair, into the workspace."""
        k, t, out = self.k, self.t, self.out
        by_keys = self.walk.by_keys
        if by_keys:
            self.of.load_queries(p, ping)
        else:
            self.of.load_keys(p, ping)
        at = k.let("at", (k.core * 2 + ping) * (t.rows * t.keys))
        self.of.products(self.l0, p, (ping, 0) if by_keys else (0, ping), out.scores, out.dprobs, at)
        k.cross_set("FIX", SCORES_READY)

    def _add(self, p: Pair, i: Scalar, pong: Scalar) -> None:
        """What a pair adds to the sums."""
        k, a, t, out = self.k, self.a, self.t, self.out
        k.cross_wait(PROBS_READY)
        at = k.let("atBefore", (k.core * 2 + pong) * (t.rows * t.keys))
        fresh = eq(i, 1)
        if self.p is not None and self.sum_v is not None and out.probs is not None:
            self._load_tile(self.p, out.probs, at, p, pong)
            probs, dy = self.p.across(pong, p.rows, p.keys), self.of.dy.across(pong, p.rows, a.values)
            multiply(k, self.l0, self.sum_v[0], probs, dy, p.rows, True, True, fresh)
        if self.ds is None or self.sum is None or out.dscores is None:
            return
        self._load_tile(self.ds, out.dscores, at, p, pong)
        by_keys = self.walk.by_keys
        ds = self.ds.across(pong, p.rows, p.keys) if by_keys else self.ds.rows(pong, p.rows, p.keys)
        pad = align(p.keys if by_keys else p.rows, 16)
        for column, width in a.parts:
            to = self.sum[0][column * pad]
            if by_keys:
                multiply(k, self.l0, to, ds, self.of.q.across(pong, p.rows, width, column), p.rows, True, True, fresh)
            else:
                keys = self.of.key.across(pong, p.keys, width, column)
                multiply(k, self.l0, to, ds, keys, p.keys, b_by_k=True, fresh=fresh)

    def _load_tile(self, panel: Panel, tensor: GmTensor, at: Scalar, p: Pair, pong: Scalar) -> None:
        """A pair's tile of the workspace, ``t.keys`` apart."""
        along = panel.turned is None
        to = panel.rows(pong, p.rows, p.keys) if along else panel.across(pong, p.rows, p.keys)
        load(self.k, to, tensor[at], self.t.keys)

    def _write(self, o: Outer) -> None:
        k, out = self.k, self.out
        if self.walk.by_keys:
            first = k.let("rowOut", (o.batch * self.a.kv_heads + o.kv_head) * self.a.keys + o.key)
            count = o.keys
        else:
            first = k.let("rowOut", (o.batch * self.a.heads + o.fixed) * self.a.queries + o.row)
            count = o.rows
        pad = k.let("padOut", align(count, 16))
        for tensor, of, column, width in (
            (out.dv, self.sum_v, 0, self.a.values),
            (out.dk, self.sum, 0, self.a.width),
            (out.dq, self.sum, 0, self.a.width),
            (out.dk_rope, self.sum, self.a.rope_at, self.a.rope),
            (out.dq_rope, self.sum, self.a.rope_at, self.a.rope),
        ):
            if tensor is not None and of is not None:
                write_out(k, tensor[first * width], of[0][column * pad], count, width, pad, width)


class _Vector:
    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, x: Inputs, out: Tensors, walk: Walk):
        self.k, self.a, self.t, self.out, self.walk = k, a, t, out, walk
        each = t.half * t.keys
        self.of = ScoreGradients(k, a, t, x)
        narrow = a.dtype != "f32"
        self.p16 = k.ub("p", a.dtype, each) if narrow and out.probs is not None else None
        self.ds16 = k.ub("ds", a.dtype, each) if narrow and out.dscores is not None else None
        self.slope = k.ub("slope", "f32", each) if a.softcap is not None and out.dscores is not None else None
        self.zero = k.ub("zero", a.dtype, pad_to(max(a.width, a.values, a.rope), 16))
        shared = out.dk_rope is not None and out.dk_rope.dtype != a.dtype
        self.zero32 = k.ub("zero32", "f32", pad_to(a.rope, 16)) if shared else None

    def run(self) -> None:
        k, walk = self.k, self.walk
        group = k.let("group", k.core // 2)
        self.of.start()
        k.fill(self.zero[0], 0.0, self.zero.elems)
        if self.zero32 is not None:
            k.fill(self.zero32[0], 0.0, self.zero32.elems)
        with k.loop("tv", group, walk.total, k.cores) as number:
            o = walk.outer(number)
            with k.if_(o.pairs > 0), k.loop("iv", 0, o.pairs + 1) as i:  # as many rounds as the cube core makes
                ping = k.slot(2, "tileV")
                with k.if_(i < o.pairs):
                    self._pair(walk.pair(o, i, ""), group, ping)
            with k.else_():
                self._nothing(o)

    def _pair(self, p: Pair, group: Scalar, ping: Var) -> None:
        k, a, t, out = self.k, self.a, self.t, self.out
        half = k.let("share", ceildiv(p.rows, 2))
        skip = k.let("skip", k.sub * half)
        mine = k.let("mine", smin(half, p.rows - skip))
        place = Place(p.batch, p.head, k.let("rowOf", p.row + skip), mine, p.key, p.keys)
        at = k.let("at", ((group * 2 + ping) * t.rows + skip) * t.keys)
        count = mine * t.keys
        with k.if_(mine > 0):
            self.of.load_rows(place)
        k.cross_wait(SCORES_READY)
        with k.if_(mine > 0):
            slope = None if self.slope is None else self.slope[0]
            s, dp = self.of.compute(place, ping if t.score_slots == 2 else 0, out.scores, out.dprobs, at, slope)
            if out.probs is not None:
                self._store(out.probs, at, s, self.p16, count)
            if dp is not None and out.dscores is not None:
                k.v("Muls", dp, dp, scalar=a.scale, count=count)
                if slope is not None:
                    k.v("Mul", dp, dp, slope, count=count)
                self._store(out.dscores, at, dp, self.ds16, count)
        k.cross_set("MTE3", PROBS_READY)

    def _store(self, to: GmTensor, at: Scalar, wide: LocalRef, narrow: Buffer | None, count: Scalar) -> None:
        k, given = self.k, wide
        if narrow is not None:
            given = narrow[0]
            k.cast(given, wide, count)
        k.store(to[at], given, count)

    def _nothing(self, o: Outer) -> None:
        """Zeros for a tile that no pair adds to, a row at a time: one vector core does it."""
        k, a, out = self.k, self.a, self.out
        if self.walk.by_keys:
            first, count = (o.batch * a.kv_heads + o.kv_head) * a.keys + o.key, o.keys
            outputs = [(out.dv, a.values), (out.dk, a.width), (out.dk_rope, a.rope)]
        else:
            first, count = (o.batch * a.heads + o.fixed) * a.queries + o.row, o.rows
            outputs = [(out.dq, a.width), (out.dq_rope, a.rope)]
        with k.if_(eq(k.sub, 0)), k.loop("row", 0, count) as row:
            for tensor, width in outputs:
                if tensor is not None:
                    zero = self.zero if tensor.dtype == a.dtype else self.zero32
                    assert zero is not None
                    k.store(tensor[(first + row) * width], zero[0], width)


def attention_grad_kernel(
    name: str, caps: Capacities, t: Tile, a: Attention, sums: Sums, source: Sequence[str] = ()
) -> Kernel:
    """The gradients that ``sums`` names, rotary parts with those of their queries or keys."""
    k = KernelBuilder(name, "mix", caps, source)
    x = declare_inputs(k, a, sums.dprobs)
    out = _results(k, a, t, caps, sums)
    walk = Walk(k, a, t, sums.by_keys, x.packed)
    with k.on_cube():
        _Cube(k, a, t, x, out, walk, sums).run()
    with k.else_():
        _Vector(k, a, t, x, out, walk).run()
    grad_witnesses(k, a, t)
    return k.finish(walk.total)


def _results(k: KernelBuilder, a: Attention, t: Tile, caps: Capacities, sums: Sums) -> Tensors:
    heads, kv, d = (a.batch, a.heads, a.queries), (a.batch, a.kv_heads, a.keys), a.dtype
    dk = k.gm("dk", d, (*kv, a.width), "out") if sums.dk else None
    dv = k.gm("dv", d, (*kv, a.values), "out") if sums.dv else None
    dq = k.gm("dq", d, (*heads, a.width), "out") if sums.dq else None
    dk_rope = dq_rope = None
    if a.rope and sums.dk:
        dk_rope = k.gm("dkRope", d if a.rope_heads == a.kv_heads else "f32", (*kv, a.rope), "out")
    if a.rope and sums.dq:
        dq_rope = k.gm("dqRope", d, (*heads, a.rope), "out")
    groups = (caps.aic, 2, t.rows, t.keys)

    def between(name: str, dtype: str, wanted: bool) -> GmTensor | None:
        return k.gm(name, dtype, groups, "inout", "workspace") if wanted else None

    probs = between("probs", d, sums.dv)
    scores = k.gm("scores", "f32", groups, "inout", "workspace")
    dprobs, dscores = between("dprobs", "f32", sums.dprobs), between("dscores", d, sums.dprobs)
    return Tensors(dq, dk, dv, dq_rope, dk_rope, scores, dprobs, probs, dscores)


def grad_witnesses(k: KernelBuilder, a: Attention, t: Tile) -> None:
    """Small: nothing, one of each, tiles that are ragged both ways, several tiles each way, keys that none sees, a tile
    that the diagonal and the window both cut; for f32, last tiles of rows that are multiplied in one piece and a rest,
    and in two and a rest.
    """
    keys = 2 * t.keys + 5
    rows = rows_that_see(a, t, keys)
    shapes = (
        (1, 0, 5, 0),
        (1, 1, 1, 0),
        (1, rows, keys, keys - rows),
        (2, 3 * t.rows - 44, 3, 0),
        (1, 9, 3 * t.keys, -5),
        (1, 2 * t.rows + 20, t.keys + 3, 0),
        (1, t.rows + 5, t.keys + 3, min(t.keys - 2, max(0, (a.window or 0) - 8))),
    )
    free = [(f, i) for i, f in enumerate((a.batch, a.queries, a.keys, a.offset)) if isinstance(f, Arg)]
    for cores, shape in zip((1, 1, 2, 1, 1, 1, 1), shapes, strict=True):
        values = {f.name: shape[i] for f, i in free}
        k.witness(cores, witness_data(a, values), **values)
        if not free:
            break
