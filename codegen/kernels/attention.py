"""Flash attention on cube and vector cores together (Dao et al., arXiv 2205.14135; Dao, arXiv 2307.08691).

A group (one cube core, two vector cores) takes a tile of query rows of one head and walks over the keys. At step i

    cube     scores of tile i into the workspace; then, once probabilities of tile i - 1 are there, their product with v
    vector   probabilities of tile i from its scores, with the running maximum and sum of each row; then the product
             of tile i - 1 added to the accumulator, which was scaled to the maximum of that time

so the two sides work on neighbouring tiles at once. Maximum, sum and accumulator never leave the vector cores; scores
(f32), probabilities (in v's dtype) and products (f32) go through device memory, two tiles of each to a group, which
cube and vector cores of this chip have to share data by. Three cross-core flags order this: scores there,
probabilities there, products there. Each side's wait also tells it that what it overwrites next has been read, as the
other side's later flag follows its reads.

Keys that position or window exclude for all rows of a tile are not visited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import GmTensor, Kernel, LocalRef
from moec.codegen.kernels.attention_cube import L0, Matrix, load, multiply, pad_to, write_out
from moec.codegen.kernels.attention_packed import Packed, packed_tensors, witness_data
from moec.codegen.kernels.attention_scores import LANES, Place, Scores, by_rows, fold, spread
from moec.codegen.kernels.attention_tile import Attention, Tile
from moec.codegen.scalar import Arg, Scalar, Var, align, ceildiv, choose, smax, smin

SCORES_READY, PROBS_READY, PRODUCT_READY = 0, 1, 2
"""Cross-core flags."""
LEAST = -3.4028234663852886e38
"""The running maximum before any score: finite, so that a row of -inf gives e^-inf and no NaN."""
TINY = 1e-30
"""Stands in for the sum of a row without any key, which is 0; every other sum is about 1 or more."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """The parameters of the forward kernel."""

    q: GmTensor
    k: GmTensor
    v: GmTensor
    q_rope: GmTensor | None
    k_rope: GmTensor | None
    mask: GmTensor | None
    packed: Packed | None
    sinks: GmTensor | None
    y: GmTensor
    softmax_max: GmTensor | None
    softmax_sum: GmTensor | None
    scores: GmTensor
    probs: GmTensor
    products: GmTensor


@dataclass(frozen=True, slots=True)
class Work:
    """One tile of queries: batch and heads, first row and rows, first tile of keys, the key after the last, and the
    number of tiles."""

    batch: Scalar
    head: Scalar
    kv_head: Scalar
    row: Scalar
    rows: Scalar
    first: Scalar
    end: Scalar
    tiles: Scalar


def work_of(k: KernelBuilder, a: Attention, t: Tile, number: Scalar, packed: Packed | None) -> Work:
    """The ``number``-th tile: heads vary fastest, and late rows come first, as under a causal mask they have most
    keys."""
    pairs = a.batch * a.heads
    pair = k.let("pair", number % pairs)
    row = k.let("row", (ceildiv(a.queries, t.rows) - 1 - number // pairs) * t.rows)
    rows = k.let("rows", smin(t.rows, a.queries - row))
    head = k.let("head", pair % a.heads)
    end: Scalar = a.keys
    if a.causal:
        end = k.let("end", smax(0, smin(a.keys, row + rows + a.offset)))
    first: Scalar = 0
    if a.window is not None:
        first = k.let("first", smax(0, row + a.offset - a.window + 1) // t.keys)
    if packed is not None:
        behind = k.read("behind", packed.after[row + rows - 1])
        end = k.let("endOwn", smin(end, a.keys - behind))
        first = k.let("firstOwn", smax(first, k.read("start", packed.first[row]) // t.keys))
    tiles = k.let("tiles", ceildiv(smax(0, end - first * t.keys), t.keys))
    return Work(k.let("batch", pair // a.heads), head, head // (a.heads // a.kv_heads), row, rows, first, end, tiles)


def attention_kernel(name: str, caps: Capacities, t: Tile, a: Attention, source: Sequence[str] = ()) -> Kernel:
    """The forward pass, with the rows' maximum and sum of the softmax if ``a.stats``."""
    k = KernelBuilder(name, "mix", caps, source)
    x = _parameters(k, a, t, caps)
    q_tiles = ceildiv(a.queries, t.rows) * a.batch * a.heads
    with k.on_cube():
        _Cube(k, a, t, x).run(q_tiles)
    with k.else_():
        _Vector(k, a, t, x).run(q_tiles)
    witnesses(k, a, t)
    return k.finish(q_tiles)


def declare_args(k: KernelBuilder, a: Attention) -> None:
    """Run-time sizes, in the order of the fields."""
    for value, low in ((a.batch, 0), (a.queries, 0), (a.keys, 0), (a.offset, -(2**31))):
        if isinstance(value, Arg) and value.name not in k.arguments():
            k.arg(value.name, low)


def mask_tensor(k: KernelBuilder, a: Attention) -> GmTensor | None:
    """The parameter of the mask, if there is one."""
    m = a.mask
    if m is None:
        return None
    shape = (
        a.batch if m.batch else 1,
        a.heads if m.heads else 1,
        a.queries if m.rows else 1,
        a.keys if m.keys else 1,
    )
    return k.gm("mask", m.dtype, shape, "in")


def _parameters(k: KernelBuilder, a: Attention, t: Tile, caps: Capacities) -> Tensors:
    declare_args(k, a)
    heads, kv = (a.batch, a.heads, a.queries), (a.batch, a.kv_heads, a.keys)
    q, key, v = (
        k.gm("q", a.dtype, (*heads, a.width), "in"),
        k.gm("k", a.dtype, (*kv, a.width), "in"),
        k.gm("v", a.dtype, (*kv, a.values), "in"),
    )
    q_rope = k_rope = sinks = row_max = row_sum = None
    if a.rope:
        q_rope = k.gm("qRope", a.dtype, (*heads, a.rope), "in")
        k_rope = k.gm("kRope", a.dtype, (a.batch, a.rope_heads, a.keys, a.rope), "in")
    mask, packed = mask_tensor(k, a), packed_tensors(k, a)
    if a.sinks:
        sinks = k.gm("sinks", a.sinks, (a.heads,), "in")
    y = k.gm("y", a.dtype, (*heads, a.values), "out")
    if a.stats:
        row_max, row_sum = k.gm("softmaxMax", "f32", heads, "out"), k.gm("softmaxSum", "f32", heads, "out")
    groups = (caps.aic, 2, t.rows)
    return Tensors(
        q, key, v, q_rope, k_rope, mask, packed, sinks, y, row_max, row_sum,
        k.gm("scores", "f32", (*groups, t.keys), "inout", "workspace"),
        k.gm("probs", a.dtype, (*groups, t.keys), "inout", "workspace"),
        k.gm("products", "f32", (*groups, a.out_pitch), "inout", "workspace"),
    )  # fmt: skip


class _Cube:
    """The cube core's part."""

    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, x: Tensors):
        self.k, self.a, self.t, self.x = k, a, t, x
        size, inner = a.dtype, pad_to(a.inner, 16)
        self.q1 = k.buffer("L1", "q1", size, t.rows * inner)
        self.k1 = k.buffer("L1", "k1", size, t.keys * inner, 2)
        self.v1 = k.buffer("L1", "v1", size, t.keys * pad_to(a.values, 16), 2)
        self.p1 = k.buffer("L1", "p1", size, t.rows * t.keys, 2)
        wide = max(t.keys, pad_to(a.values, 16))
        self.l0 = L0(
            k.buffer("L0A", "a0", size, t.rows * t.depth, 2), k.buffer("L0B", "b0", size, wide * t.depth, 2), t.depth
        )
        self.s0 = k.buffer("L0C", "s0", "f32", t.rows * t.keys)
        self.o0 = k.buffer("L0C", "o0", "f32", t.rows * pad_to(a.values, 16))

    def run(self, q_tiles: Scalar) -> None:
        k, a, t, x = self.k, self.a, self.t, self.x
        with k.loop("t", k.core, q_tiles, k.cores) as number:
            w = work_of(k, a, t, number, x.packed)
            m16 = k.let("m16", align(w.rows, 16))
            q = Matrix(self.q1[0], w.rows, a.inner, m16)
            with k.if_(w.tiles > 0):
                first = k.let("firstRow", (w.batch * a.heads + w.head) * a.queries + w.row)
                self._load_parts(q, x.q, x.q_rope, first, first)
            with k.loop("i", 0, choose(w.tiles > 0, w.tiles + 1, 0)) as i:
                ping = k.slot(2, "tile")
                with k.if_(i < w.tiles):
                    self._scores(w, q, i, ping)
                with k.if_(i > 0):
                    self._product(w, m16, i - 1, 1 - ping)

    def _load_parts(self, to: Matrix, plain: GmTensor, rope: GmTensor | None, at: Scalar, rope_at: Scalar) -> None:
        """Both parts of queries or keys side by side."""
        k, a = self.k, self.a
        load(k, Matrix(to.at, to.rows, a.width, to.pad), plain[at * a.width], a.width)
        if rope is not None:
            part = Matrix(to.at, to.rows, a.rope, to.pad)
            load(k, part, rope[rope_at * a.rope], a.rope, a.rope_at * to.pad)

    def _scores(self, w: Work, q: Matrix, i: Scalar, ping: Var) -> None:
        k, a, t, x = self.k, self.a, self.t, self.x
        key = k.let("key", (w.first + i) * t.keys)
        keys = k.let("keys", smin(t.keys, w.end - key))
        tile = Matrix(self.k1[ping], keys, a.inner, k.let("n16", align(keys, 16)))
        at = k.let("keyRow", (w.batch * a.kv_heads + w.kv_head) * a.keys + key)
        rope_at = at if a.rope_heads == a.kv_heads else k.let("ropeRow", w.batch * a.keys + key)
        self._load_parts(tile, x.k, x.k_rope, at, rope_at)
        multiply(k, self.l0, self.s0[0], q, tile, a.inner)
        to = x.scores[(k.core * 2 + ping) * (t.rows * t.keys)]
        write_out(k, to, self.s0[0], w.rows, keys, q.pad, t.keys)
        k.cross_set("FIX", SCORES_READY)

    def _product(self, w: Work, m16: Scalar, i: Scalar, pong: Scalar) -> None:
        k, a, t, x = self.k, self.a, self.t, self.x
        key = k.let("keyV", (w.first + i) * t.keys)
        keys = k.let("keysV", smin(t.keys, w.end - key))
        wide = pad_to(a.values, 16)
        v = Matrix(self.v1[pong], keys, a.values, align(keys, 16), a.dtype == "f32", wide)
        load(k, v, x.v[((w.batch * a.kv_heads + w.kv_head) * a.keys + key) * a.values], a.values)
        k.cross_wait(PROBS_READY)
        p = Matrix(self.p1[pong], w.rows, keys, m16)
        load(k, p, x.probs[(k.core * 2 + pong) * (t.rows * t.keys)], t.keys)
        filled = Matrix(v.at, v.rows, a.out_pitch, v.pad, v.bands, v.wide)
        multiply(k, self.l0, self.o0[0], p, filled, keys, b_by_k=True)
        to = x.products[(k.core * 2 + pong) * (t.rows * a.out_pitch)]
        write_out(k, to, self.o0[0], w.rows, a.out_pitch, m16, a.out_pitch)
        k.cross_set("FIX", PRODUCT_READY)


class _Vector:
    """The vector cores' part: each has half of the rows."""

    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, x: Tensors):
        self.k, self.a, self.t, self.x = k, a, t, x
        half, each = t.half, t.half * t.keys
        self.s = k.ub("s", "f32", each, t.score_slots)
        self.p = None if a.dtype == "f32" else k.ub("p", a.dtype, each)
        self.acc = k.ub("acc", "f32", half * a.out_pitch)
        self.part = k.ub("part", "f32", half * a.out_pitch)
        self.fold = k.ub("folded", "f32", half * LANES) if t.keys > LANES else None
        self.top = k.ub("top", "f32", half)
        self.last = k.ub("last", "f32", half)
        self.sum = k.ub("sum", "f32", half)
        self.found = k.ub("found", "f32", half)
        self.alpha = k.ub("alpha", "f32", half, 2)
        self.each = k.ub("each", "f32", half * 8)
        self.sink = k.ub("sink", "f32", 8) if a.sinks else None
        self.sink16 = k.ub("sink16", a.sinks, 16) if a.sinks in ("f16", "bf16") else None
        self.scores = Scores(k, a, t, x.mask, x.packed)

    def run(self, q_tiles: Scalar) -> None:
        k, a, t, x = self.k, self.a, self.t, self.x
        group = k.let("group", k.core // 2)
        self.scores.start()
        k.fill(self.found[0], 0.0, t.half)
        with k.loop("tv", group, q_tiles, k.cores) as number:
            w = work_of(k, a, t, number, x.packed)
            half = k.let("share", ceildiv(w.rows, 2))
            skip = k.let("skip", k.sub * half)
            mine = k.let("mine", smin(half, w.rows - skip))
            with k.if_(mine > 0):
                self._begin(w, mine)
            with k.loop("iv", 0, choose(w.tiles > 0, w.tiles + 1, 0)) as i:
                ping = k.slot(2, "tileV")
                with k.if_(i < w.tiles):
                    self._probabilities(w, group, skip, mine, i, ping)
                with k.if_(i > 0):
                    self._accumulate(group, skip, mine, 1 - ping)
            with k.if_(mine > 0):
                self._end(w, skip, mine)

    def _begin(self, w: Work, mine: Scalar) -> None:
        k, a, t, sinks = self.k, self.a, self.t, self.x.sinks
        if sinks is None or self.sink is None:
            k.fill(self.top[0], LEAST, t.half)
            k.fill(self.sum[0], 0.0, t.half)
        else:
            if self.sink16 is not None:
                k.load(self.sink16[0], sinks[w.head], 1)
                k.cast(self.sink[0], self.sink16[0], 1)
            else:
                k.load(self.sink[0], sinks[w.head], 1)
            k.fill(self.top[0], k.read("sinkOfHead", self.sink[0]), t.half)
            k.fill(self.sum[0], 1.0, t.half)
        k.fill(self.acc[0], 0.0, mine * a.out_pitch)

    def _probabilities(self, w: Work, group: Scalar, skip: Scalar, mine: Scalar, i: Scalar, ping: Var) -> None:
        k, t, x = self.k, self.t, self.x
        key = k.let("keyOfScores", (w.first + i) * t.keys)
        place = Place(w.batch, w.head, k.let("rowOf", w.row + skip), mine, key, smin(t.keys, w.end - key))
        place = Place(w.batch, w.head, place.row, mine, key, k.let("keysOf", place.keys))
        s = self.s[ping if t.score_slots == 2 else 0]
        at = k.let("at", ((group * 2 + ping) * t.rows + skip) * t.keys)
        k.cross_wait(SCORES_READY)
        with k.if_(mine > 0):
            self.scores.load(s, x.scores, at, place)
            self.scores.finish(s, place)
            self._softmax(s, mine, ping)
            out = s
            if self.p is not None:
                out = self.p[0]
                k.cast(out, s, mine * t.keys)
            k.store(x.probs[at], out, mine * t.keys)
        k.cross_set("MTE3", PROBS_READY)

    def _softmax(self, s: LocalRef, mine: Scalar, ping: Var) -> None:
        """e^(score - maximum so far) in place; maximum and sum move on, alpha is what older ones are scaled by."""
        k, t = self.k, self.t
        half = t.half
        folded = fold(k, "Max", self.fold, s, mine, t.keys)
        self._reduce("WholeReduceMax.value", folded, mine)
        k.v("Adds", self.last[0], self.top[0], scalar=0.0, count=half)
        k.v("Max", self.top[0], self.top[0], self.found[0], count=half)
        k.v("Sub", self.alpha[ping], self.last[0], self.top[0], count=half)
        k.v("Exp", self.alpha[ping], self.alpha[ping], count=half)
        spread(k, self.each[0], self.top[0], half)
        by_rows(k, "Sub", s, s, self.each[0], mine, t.keys, t.keys, True)
        k.v("Exp", s, s, count=mine * t.keys)
        folded = fold(k, "Add", self.fold, s, mine, t.keys)
        self._reduce("WholeReduceSum", folded, mine)
        k.v("Mul", self.sum[0], self.sum[0], self.alpha[ping], count=half)
        k.v("Add", self.sum[0], self.sum[0], self.found[0], count=half)

    def _reduce(self, name: str, rows: LocalRef, mine: Scalar) -> None:
        self.k.v(name, self.found[0], rows, mask=LANES, repeatTime=mine, dstRepStride=1, srcBlkStride=1, srcRepStride=8)

    def _accumulate(self, group: Scalar, skip: Scalar, mine: Scalar, pong: Scalar) -> None:
        k, a, t, x = self.k, self.a, self.t, self.x
        at = k.let("atProduct", ((group * 2 + pong) * t.rows + skip) * a.out_pitch)
        k.cross_wait(PRODUCT_READY)
        with k.if_(mine > 0):
            k.load(self.part[0], x.products[at], mine * a.out_pitch)
            spread(k, self.each[0], self.alpha[pong], t.half)
            by_rows(k, "Mul", self.acc[0], self.acc[0], self.each[0], mine, a.out_pitch, a.out_pitch, True)
            k.v("Add", self.acc[0], self.acc[0], self.part[0], count=mine * a.out_pitch)

    def _end(self, w: Work, skip: Scalar, mine: Scalar) -> None:
        """Divides by the sums and writes; rows without keys are 0, or 0 / 0 where they are to be NaN."""
        k, a, t, x = self.k, self.a, self.t, self.x
        row = k.let("rowOut", (w.batch * a.heads + w.head) * a.queries + w.row + skip)
        if x.softmax_max is not None and x.softmax_sum is not None:
            k.store(x.softmax_sum[row], self.sum[0], mine)
            k.v("Mins", self.last[0], self.sum[0], scalar=1.0, count=t.half)  # sums are 1 or more, or 0 without keys
            k.v("Ln", self.last[0], self.last[0], count=t.half)
            k.v("Add", self.last[0], self.last[0], self.top[0], count=t.half)
            k.store(x.softmax_max[row], self.last[0], mine)
        if a.zero_empty:
            k.v("Maxs", self.sum[0], self.sum[0], scalar=TINY, count=t.half)
        spread(k, self.each[0], self.sum[0], t.half)
        by_rows(k, "Div", self.acc[0], self.acc[0], self.each[0], mine, a.out_pitch, a.out_pitch, True)
        out = self.acc[0]
        if a.dtype != "f32":
            out = self.part[0].cast(a.dtype)
            k.cast(out, self.acc[0], mine * a.out_pitch)
        k.store(x.y[row * a.values], out, a.values, mine)


def rows_that_see(a: Attention, t: Tile, keys: int) -> int:
    """Queries, a ragged tile of them at least, of which the last sees ``keys`` keys."""
    seen = keys - a.offset if a.causal and isinstance(a.offset, int) else 0
    return max(t.rows + 3, seen)


def witnesses(k: KernelBuilder, a: Attention, t: Tile) -> None:
    """Few and small: no row, one row, tiles that are ragged both ways, several tiles of keys, several tiles a group; of
    packed sequences, whose queries are as many as their keys, also a few queries that see many keys.
    """
    keys = 2 * t.keys + 5
    shapes = [(1, 0, 5), (1, 1, 1), (1, rows_that_see(a, t, keys), keys), (1, 2, 3 * t.keys), (2, t.rows, t.keys + 1)]
    cut = min(t.keys - 2, max(0, (a.window or 0) - 8))  # both the diagonal and the window cut the first tile
    last = (5, t.keys + t.rows + 5) if a.packed else (t.rows + 5, t.rows + 5 + cut)
    shapes += [(1, *last)] if a.packed or a.window is not None else []
    shapes += [(1, t.keys - 2, t.keys - 2)] if a.window is not None else []  # one tile, of many pieces of keys
    free = [v.name for v in (a.batch, a.queries, a.keys, a.offset) if isinstance(v, Arg)]
    for cores, (batch, queries, keys) in zip((1, 1, 2, 1, 1, 1, 1), shapes, strict=False):
        values: dict[str, int] = {}
        for field, number in ((a.batch, batch), (a.queries, queries), (a.keys, keys), (a.offset, keys - queries)):
            if isinstance(field, Arg):
                values[field.name] = number
        k.witness(cores, witness_data(a, values), **{name: values[name] for name in dict.fromkeys(free)})
        if not free:
            break
