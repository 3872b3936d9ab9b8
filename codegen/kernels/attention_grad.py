"""Gradients of attention on cube and vector cores together (Dao et al., arXiv 2205.14135), without atomics.

Two kernels walk over pairs of a tile of queries and a tile of keys, each keeping its sums in L0C from first to last:

    by keys     a group takes a tile of keys of one key head and walks over the queries of all heads that read it, in
                order: dv = sum of p^T dy, dk = sum of ds^T q
    by queries  a group takes a tile of queries of one head and walks over its keys: dq = sum of ds k

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
from moec.codegen.kernel_ir import Buffer, GmTensor, Kernel
from moec.codegen.kernels.attention import LEAST, PROBS_READY, SCORES_READY, TINY, declare_args
from moec.codegen.kernels.attention_cube import L0, Matrix, load, multiply, pad_to, write_out
from moec.codegen.kernels.attention_pairs import Outer, Pair, Walk
from moec.codegen.kernels.attention_scores import Place, Scores, by_rows, spread
from moec.codegen.kernels.attention_tile import Attention, Tile
from moec.codegen.scalar import Arg, Scalar, Var, align, ceildiv, eq, smin


@dataclass(frozen=True, slots=True)
class Tensors:
    """The parameters; what the kernel does not write is None."""

    q: GmTensor
    k: GmTensor
    v: GmTensor
    dy: GmTensor
    softmax_max: GmTensor
    softmax_sum: GmTensor
    delta: GmTensor
    q_rope: GmTensor | None
    k_rope: GmTensor | None
    mask: GmTensor | None
    dq: GmTensor | None
    dk: GmTensor | None
    dv: GmTensor | None
    dq_rope: GmTensor | None
    dk_rope: GmTensor | None
    scores: GmTensor
    dprobs: GmTensor
    probs: GmTensor | None
    dscores: GmTensor


Part = tuple[GmTensor, Scalar, int, int]
"""What a panel holds: tensor, first row, row length, and column in the panel."""


@dataclass(slots=True)
class _Panel:
    """One operand in L1, ``wide`` columns, as the cube reads it along rows (``plain``) and across them (``turned``);
    16-bit operands lie the same way for both."""

    plain: Buffer | None
    turned: Buffer | None
    wide: int

    def rows(self, slot: Scalar, rows: Scalar, cols: Scalar, column: int = 0) -> Matrix:
        assert self.plain is not None
        pad = align(rows, 16)
        return Matrix(self.plain[slot][column * pad], rows, cols, pad)

    def across(self, slot: Scalar, rows: Scalar, cols: Scalar, column: int = 0) -> Matrix:
        if self.turned is None:
            return self.rows(slot, rows, cols, column)
        return Matrix(self.turned[slot][column * 16], rows, cols, align(rows, 16), True, self.wide)

    def load(self, k: KernelBuilder, slot: Scalar, rows: Scalar, parts: Sequence[Part]) -> None:
        for tensor, first, width, column in parts:
            if self.plain is not None:
                load(k, self.rows(slot, rows, width, column), tensor[first * width], width)
            if self.turned is not None:
                load(k, self.across(slot, rows, width, column), tensor[first * width], width)


def _panel(
    k: KernelBuilder, name: str, dtype: str, rows: int, cols: int, slots: int, along: bool, across: bool
) -> _Panel:
    wide = pad_to(cols, 16)
    f32 = dtype == "f32"
    plain = k.buffer("L1", name, dtype, rows * wide, slots) if along or not f32 else None
    turned = k.buffer("L1", f"{name}T", dtype, rows * wide, slots) if across and f32 else None
    return _Panel(plain, turned, wide)


class _Cube:
    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, x: Tensors, walk: Walk):
        self.k, self.a, self.t, self.x, self.walk = k, a, t, x, walk
        by_keys, d = walk.by_keys, a.dtype
        inner, wide = pad_to(a.inner, 16), pad_to(a.values, 16)
        self.q = _panel(k, "q1", d, t.rows, a.inner, 2 if by_keys else 1, True, by_keys)
        self.dy = _panel(k, "dy1", d, t.rows, a.values, 2 if by_keys else 1, True, by_keys)
        self.key = _panel(k, "k1", d, t.keys, a.inner, 1 if by_keys else 2, True, not by_keys)
        self.v = _panel(k, "v1", d, t.keys, a.values, 1 if by_keys else 2, True, False)
        self.p = _panel(k, "p1", d, t.rows, t.keys, 2, False, True) if by_keys else None
        self.ds = _panel(k, "ds1", d, t.rows, t.keys, 2, not by_keys, by_keys)
        first, second = max(t.rows, t.keys), max(t.rows, t.keys, inner, wide)
        self.l0 = L0(
            k.buffer("L0A", "a0", d, first * t.depth, 2), k.buffer("L0B", "b0", d, second * t.depth, 2), t.depth
        )
        self.s0 = k.buffer("L0C", "s0", "f32", t.rows * t.keys)
        self.dp0 = k.buffer("L0C", "dp0", "f32", t.rows * t.keys)
        self.sum_v = k.buffer("L0C", "sumV", "f32", t.keys * wide) if by_keys else None
        self.sum = k.buffer("L0C", "sum", "f32", (t.keys if by_keys else t.rows) * inner)

    def run(self) -> None:
        k, walk = self.k, self.walk
        with k.loop("t", k.core, walk.total, k.cores) as number:
            o = walk.outer(number)
            with k.if_(o.pairs > 0):
                one = Pair(o.batch, o.fixed, o.kv_head, o.row, o.rows, o.key, o.keys)
                if walk.by_keys:
                    self._load_keys(one, 0)
                else:
                    self._load_queries(one, 0)
                with k.loop("i", 0, o.pairs + 1) as i:
                    ping = k.slot(2, "tile")
                    with k.if_(i < o.pairs):
                        self._scores(walk.pair(o, i, ""), ping)
                    with k.if_(i > 0):
                        self._add(walk.pair(o, i - 1, "Before"), i, 1 - ping)
                self._write(o)

    def _load_queries(self, p: Pair, slot: Scalar) -> None:
        k, a, x = self.k, self.a, self.x
        first = k.let("queryRow", (p.batch * a.heads + p.head) * a.queries + p.row)
        parts: list[Part] = [(x.q, first, a.width, 0)]
        if x.q_rope is not None:
            parts.append((x.q_rope, first, a.rope, a.rope_at))
        self.q.load(k, slot, p.rows, parts)
        self.dy.load(k, slot, p.rows, [(x.dy, first, a.values, 0)])

    def _load_keys(self, p: Pair, slot: Scalar) -> None:
        k, a, x = self.k, self.a, self.x
        first = k.let("keyRow", (p.batch * a.kv_heads + p.kv_head) * a.keys + p.key)
        parts: list[Part] = [(x.k, first, a.width, 0)]
        if x.k_rope is not None:
            rope = first if a.rope_heads == a.kv_heads else p.batch * a.keys + p.key
            parts.append((x.k_rope, rope, a.rope, a.rope_at))
        self.key.load(k, slot, p.keys, parts)
        self.v.load(k, slot, p.keys, [(x.v, first, a.values, 0)])

    def _scores(self, p: Pair, ping: Var) -> None:
        """Scores and dy v^T of a pair, into the workspace."""
        k, a, t, x = self.k, self.a, self.t, self.x
        by_keys = self.walk.by_keys
        if by_keys:
            self._load_queries(p, ping)
        else:
            self._load_keys(p, ping)
        mine, theirs = (ping, 0) if by_keys else (0, ping)
        at = k.let("at", (k.core * 2 + ping) * (t.rows * t.keys))
        for column, width in a.parts:
            q, key = self.q.rows(mine, p.rows, width, column), self.key.rows(theirs, p.keys, width, column)
            multiply(k, self.l0, self.s0[0], q, key, width, fresh=int(column == 0))
        write_out(k, x.scores[at], self.s0[0], p.rows, p.keys, q.pad, t.keys)
        dy, v = self.dy.rows(mine, p.rows, a.values), self.v.rows(theirs, p.keys, a.values)
        multiply(k, self.l0, self.dp0[0], dy, v, a.values)
        write_out(k, x.dprobs[at], self.dp0[0], p.rows, p.keys, q.pad, t.keys)
        k.cross_set("FIX", SCORES_READY)

    def _add(self, p: Pair, i: Scalar, pong: Scalar) -> None:
        """What a pair adds to the sums."""
        k, a, t, x = self.k, self.a, self.t, self.x
        k.cross_wait(PROBS_READY)
        at = k.let("atBefore", (k.core * 2 + pong) * (t.rows * t.keys))
        fresh = eq(i, 1)
        if self.p is None or self.sum_v is None:
            self._load_tile(self.ds, x.dscores, at, p, pong)
            ds = self.ds.rows(pong, p.rows, p.keys)
            for column, width in a.parts:
                keys = self.key.across(pong, p.keys, width, column)
                multiply(k, self.l0, self.sum[0][column * ds.pad], ds, keys, p.keys, b_by_k=True, fresh=fresh)
            return
        assert x.probs is not None
        self._load_tile(self.p, x.probs, at, p, pong)
        probs, dy = self.p.across(pong, p.rows, p.keys), self.dy.across(pong, p.rows, a.values)
        multiply(k, self.l0, self.sum_v[0], probs, dy, p.rows, True, True, fresh)
        self._load_tile(self.ds, x.dscores, at, p, pong)
        ds = self.ds.across(pong, p.rows, p.keys)
        for column, width in a.parts:
            q, to = self.q.across(pong, p.rows, width, column), self.sum[0][column * align(p.keys, 16)]
            multiply(k, self.l0, to, ds, q, p.rows, True, True, fresh)

    def _load_tile(self, panel: _Panel, tensor: GmTensor, at: Scalar, p: Pair, pong: Scalar) -> None:
        """A pair's tile of the workspace, ``t.keys`` apart."""
        along = panel.turned is None
        to = panel.rows(pong, p.rows, p.keys) if along else panel.across(pong, p.rows, p.keys)
        load(self.k, to, tensor[at], self.t.keys)

    def _write(self, o: Outer) -> None:
        k, a, x = self.k, self.a, self.x
        if self.sum_v is not None:
            first = k.let("rowOut", (o.batch * a.kv_heads + o.kv_head) * a.keys + o.key)
            count = o.keys
            outputs = [(x.dv, self.sum_v, 0, a.values), (x.dk, self.sum, 0, a.width)]
            rope = x.dk_rope
        else:
            first = k.let("rowOut", (o.batch * a.heads + o.fixed) * a.queries + o.row)
            count = o.rows
            outputs = [(x.dq, self.sum, 0, a.width)]
            rope = x.dq_rope
        if rope is not None:
            outputs.append((rope, self.sum, a.rope_at, a.rope))
        pad = k.let("padOut", align(count, 16))
        for tensor, of, column, width in outputs:
            assert tensor is not None
            write_out(k, tensor[first * width], of[0][column * pad], count, width, pad, width)


class _Vector:
    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, x: Tensors, walk: Walk):
        self.k, self.a, self.t, self.x, self.walk = k, a, t, x, walk
        half, each = t.half, t.half * t.keys
        self.s = k.ub("s", "f32", each, t.score_slots)
        self.dp = k.ub("dp", "f32", each, t.score_slots)
        narrow = a.dtype != "f32"
        self.p16 = k.ub("p", a.dtype, each) if narrow and walk.by_keys else None
        self.ds16 = k.ub("ds", a.dtype, each) if narrow else None
        self.slope = k.ub("slope", "f32", each) if a.softcap is not None else None
        self.top, self.total, self.delta = (k.ub(f"{n}Rows", "f32", half) for n in ("max", "sum", "delta"))
        self.each_top, self.each_total, self.each_delta = (
            k.ub(f"each{n}", "f32", half * 8) for n in ("Max", "Sum", "Delta")
        )
        self.zero = k.ub("zero", a.dtype, pad_to(max(a.width, a.values, a.rope), 16))
        shared = x.dk_rope is not None and x.dk_rope.dtype != a.dtype
        self.zero32 = k.ub("zero32", "f32", pad_to(a.rope, 16)) if shared else None
        self.scores = Scores(k, a, t, x.mask)

    def run(self) -> None:
        k, t, walk = self.k, self.t, self.walk
        group = k.let("group", k.core // 2)
        self.scores.start()
        for rows in (self.top, self.total, self.delta):
            k.fill(rows[0], 0.0, t.half)
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
        k, a, t, x = self.k, self.a, self.t, self.x
        half = k.let("share", ceildiv(p.rows, 2))
        skip = k.let("skip", k.sub * half)
        mine = k.let("mine", smin(half, p.rows - skip))
        place = Place(p.batch, p.head, k.let("rowOf", p.row + skip), mine, p.key, p.keys)
        at = k.let("at", ((group * 2 + ping) * t.rows + skip) * t.keys)
        count = mine * t.keys
        slot: Scalar = ping if t.score_slots == 2 else 0
        s, dp = self.s[slot], self.dp[slot]
        with k.if_(mine > 0):
            first = k.let("first", (p.batch * a.heads + p.head) * a.queries + place.row)
            filled = k.let("filled", align(mine, 8) - mine)
            for rows, of in ((self.top, x.softmax_max), (self.total, x.softmax_sum), (self.delta, x.delta)):
                k.load(rows[0], of[first], mine, pad=0.0, right=filled)
            if a.zero_empty:
                k.v("Maxs", self.top[0], self.top[0], scalar=LEAST, count=t.half)
                k.v("Maxs", self.total[0], self.total[0], scalar=TINY, count=t.half)
            spread(k, self.each_top[0], self.top[0], t.half)
            spread(k, self.each_total[0], self.total[0], t.half)
            spread(k, self.each_delta[0], self.delta[0], t.half)
        k.cross_wait(SCORES_READY)
        with k.if_(mine > 0):
            self.scores.load(s, x.scores, at, place)
            self.scores.load(dp, x.dprobs, at, place)
            slope = None if self.slope is None else self.slope[0]
            self.scores.finish(s, place, slope)
            by_rows(k, "Sub", s, s, self.each_top[0], mine, t.keys, t.keys, True)
            k.v("Exp", s, s, count=count)
            by_rows(k, "Div", s, s, self.each_total[0], mine, t.keys, t.keys, True)
            by_rows(k, "Sub", dp, dp, self.each_delta[0], mine, t.keys, t.keys, True)
            k.v("Mul", dp, dp, s, count=count)
            k.v("Muls", dp, dp, scalar=a.scale, count=count)
            if slope is not None:
                k.v("Mul", dp, dp, slope, count=count)
            if x.probs is not None:
                out = s
                if self.p16 is not None:
                    out = self.p16[0]
                    k.cast(out, s, count)
                k.store(x.probs[at], out, count)
            out = dp
            if self.ds16 is not None:
                out = self.ds16[0]
                k.cast(out, dp, count)
            k.store(x.dscores[at], out, count)
        k.cross_set("MTE3", PROBS_READY)

    def _nothing(self, o: Outer) -> None:
        """Zeros for a tile that no pair adds to, a row at a time: one vector core does it."""
        k, a, x = self.k, self.a, self.x
        if self.walk.by_keys:
            first, count = (o.batch * a.kv_heads + o.kv_head) * a.keys + o.key, o.keys
            outputs = [(x.dv, a.values), (x.dk, a.width), (x.dk_rope, a.rope)]
        else:
            first, count = (o.batch * a.heads + o.fixed) * a.queries + o.row, o.rows
            outputs = [(x.dq, a.width), (x.dq_rope, a.rope)]
        with k.if_(eq(k.sub, 0)), k.loop("row", 0, count) as row:
            for tensor, width in outputs:
                if tensor is not None:
                    zero = self.zero if tensor.dtype == a.dtype else self.zero32
                    assert zero is not None
                    k.store(tensor[(first + row) * width], zero[0], width)


def attention_grad_kernel(
    name: str, caps: Capacities, t: Tile, a: Attention, by_keys: bool, source: Sequence[str] = ()
) -> Kernel:
    """dk, dv and the keys' rotary part (``by_keys``), or dq and the queries'."""
    k = KernelBuilder(name, "mix", caps, source)
    x = _parameters(k, a, t, caps, by_keys)
    walk = Walk(k, a, t, by_keys)
    with k.on_cube():
        _Cube(k, a, t, x, walk).run()
    with k.else_():
        _Vector(k, a, t, x, walk).run()
    _witnesses(k, a, t)
    return k.finish(walk.total)


def _parameters(k: KernelBuilder, a: Attention, t: Tile, caps: Capacities, by_keys: bool) -> Tensors:
    declare_args(k, a)
    heads, kv = (a.batch, a.heads, a.queries), (a.batch, a.kv_heads, a.keys)
    d = a.dtype
    ins = [
        k.gm("q", d, (*heads, a.width), "in"),
        k.gm("k", d, (*kv, a.width), "in"),
        k.gm("v", d, (*kv, a.values), "in"),
        k.gm("dy", d, (*heads, a.values), "in"),
        k.gm("softmaxMax", "f32", heads, "in"),
        k.gm("softmaxSum", "f32", heads, "in"),
        k.gm("delta", "f32", heads, "in"),
    ]
    q_rope = k_rope = mask = None
    if a.rope:
        q_rope = k.gm("qRope", d, (*heads, a.rope), "in")
        k_rope = k.gm("kRope", d, (a.batch, a.rope_heads, a.keys, a.rope), "in")
    if a.mask is not None:
        m = a.mask
        shape = (a.batch if m.batch else 1, a.heads if m.heads else 1, a.queries if m.rows else 1, a.keys)
        mask = k.gm("mask", m.dtype, shape, "in")
    dq = dk = dv = dq_rope = dk_rope = probs = None
    groups = (caps.aic, 2, t.rows, t.keys)
    if by_keys:
        dk, dv = k.gm("dk", d, (*kv, a.width), "out"), k.gm("dv", d, (*kv, a.values), "out")
        if a.rope:
            dk_rope = k.gm("dkRope", d if a.rope_heads == a.kv_heads else "f32", (*kv, a.rope), "out")
        probs = k.gm("probs", d, groups, "inout", "workspace")
    else:
        dq = k.gm("dq", d, (*heads, a.width), "out")
        if a.rope:
            dq_rope = k.gm("dqRope", d, (*heads, a.rope), "out")
    scores = k.gm("scores", "f32", groups, "inout", "workspace")
    dprobs = k.gm("dprobs", "f32", groups, "inout", "workspace")
    dscores = k.gm("dscores", d, groups, "inout", "workspace")
    q, key, v, dy, row_max, row_sum, delta = ins
    return Tensors(
        q, key, v, dy, row_max, row_sum, delta, q_rope, k_rope, mask, dq, dk, dv, dq_rope, dk_rope,
        scores, dprobs, probs, dscores,
    )  # fmt: skip


def _witnesses(k: KernelBuilder, a: Attention, t: Tile) -> None:
    """Small: nothing, one of each, tiles that are ragged both ways, several tiles each way, keys that none sees."""
    shapes = (
        (1, 0, 5, 0),
        (1, 1, 1, 0),
        (1, t.rows + 3, 2 * t.keys + 5, 0),
        (2, 3 * t.rows, 3, 0),
        (1, 9, 3 * t.keys, -5),
        (1, 2 * t.rows + 5, t.keys + 3, 0),
    )
    free = [(f, i) for i, f in enumerate((a.batch, a.queries, a.keys, a.offset)) if isinstance(f, Arg)]
    for cores, shape in zip((1, 1, 2, 1, 1, 1), shapes, strict=True):
        k.witness(cores, None, **{f.name: shape[i] for f, i in free})
        if not free:
            break
