"""The gradient of attention by a mask that is added to its scores, on cube and vector cores together, without atomics.

A group takes a tile of queries by a tile of keys of one of the mask's heads and batches, and walks over the batches and
heads that this part of the mask stands for, in order. For each the cube core computes scores q k^T and dy v^T into the
workspace, and the vector cores make p (dy v^T - delta) of them, which they sum in UB. Sums over queries or keys, along
which a mask may be broadcast too, are taken afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import GmTensor, Kernel
from moec.codegen.kernels.attention import PROBS_READY, SCORES_READY
from moec.codegen.kernels.attention_cube import L0
from moec.codegen.kernels.attention_dscores import ScoreGradients
from moec.codegen.kernels.attention_grad import grad_witnesses
from moec.codegen.kernels.attention_packed import Packed
from moec.codegen.kernels.attention_pairs import Pair
from moec.codegen.kernels.attention_panels import Inputs, Operands, declare_inputs
from moec.codegen.kernels.attention_scores import Place
from moec.codegen.kernels.attention_tile import Attention, Tile
from moec.codegen.scalar import Scalar, ceildiv, choose, smax, smin


@dataclass(frozen=True, slots=True)
class Spot:
    """A tile of the mask: ``row`` of the result it starts in; batch and head are 0 where the mask has none."""

    batch: Scalar
    head: Scalar
    row: Scalar
    rows: Scalar
    key: Scalar
    keys: Scalar
    pairs: Scalar


class Walk:
    """Which tiles of the mask there are, and whose scores each was added to."""

    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, packed: Packed | None):
        assert a.mask is not None
        self.k, self.a, self.t, self.mask, self.packed = k, a, t, a.mask, packed
        self.batches: Scalar = a.batch if a.mask.batch else 1
        self.heads = a.heads if a.mask.heads else 1
        self.tiles = ceildiv(a.keys, t.keys)
        self.total = ceildiv(a.queries, t.rows) * self.tiles * self.batches * self.heads

    def spot(self, number: Scalar) -> Spot:
        k, a, t = self.k, self.a, self.t
        plane = k.let("plane", number % (self.batches * self.heads))
        tile = k.let("tile", number // (self.batches * self.heads))
        row, key = k.let("row", tile // self.tiles * t.rows), k.let("key", tile % self.tiles * t.keys)
        rows, keys = k.let("rows", smin(t.rows, a.queries - row)), k.let("keys", smin(t.keys, a.keys - key))
        each: Scalar = 1 if self.mask.batch else a.batch
        pairs: Scalar = each if self.mask.heads else each * a.heads
        if a.causal:
            pairs = k.let("seen", choose(key < row + rows + a.offset, pairs, 0))
        if a.window is not None:
            pairs = k.let("near", choose(key + keys > row + a.offset - a.window + 1, pairs, 0))
        if self.packed is not None:
            start, behind = k.read("start", self.packed.first[row]), k.read("behind", self.packed.after[row + rows - 1])
            pairs = k.let("own", choose(key + keys > start, choose(key < a.keys - behind, pairs, 0), 0))
        return Spot(plane // self.heads, plane % self.heads, row, rows, key, keys, pairs)

    def pair(self, s: Spot, i: Scalar) -> Pair:
        k, a = self.k, self.a
        batch = s.batch if self.mask.batch else i if self.mask.heads else k.let("batch", i // a.heads)
        head = k.let("head", s.head if self.mask.heads else i % a.heads)
        return Pair(batch, head, head // (a.heads // a.kv_heads), s.row, s.rows, s.key, s.keys)


class _Cube:
    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, x: Inputs, scores: GmTensor, dprobs: GmTensor):
        self.k, self.t, self.scores, self.dprobs = k, t, scores, dprobs
        self.of = Operands(k, a, t, x, (2, 2), (False, False, False))
        widest = max(t.rows, t.keys) * t.depth
        self.l0 = L0(k.buffer("L0A", "a0", a.dtype, widest, 2), k.buffer("L0B", "b0", a.dtype, widest, 2), t.depth)

    def run(self, walk: Walk) -> None:
        k, t = self.k, self.t
        with k.loop("t", k.core, walk.total, k.cores) as number:
            s = walk.spot(number)
            with k.loop("i", 0, choose(s.pairs > 0, s.pairs + 1, 0)) as i:
                ping = k.slot(2, "turn")
                with k.if_(i < s.pairs):
                    p = walk.pair(s, i)
                    self.of.load_queries(p, ping)
                    self.of.load_keys(p, ping)
                    at = k.let("at", (k.core * 2 + ping) * (t.rows * t.keys))
                    self.of.products(self.l0, p, (ping, ping), self.scores, self.dprobs, at)
                    k.cross_set("FIX", SCORES_READY)
                with k.if_(i > 0):
                    k.cross_wait(PROBS_READY)


class _Vector:
    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, x: Inputs, scores: GmTensor, dprobs: GmTensor,
                 out: GmTensor):  # fmt: skip
        self.k, self.a, self.t, self.scores, self.dprobs, self.out = k, a, t, scores, dprobs, out
        each = t.half * t.keys
        self.of = ScoreGradients(k, a, t, x)
        self.acc = k.ub("acc", "f32", each)
        self.narrow = None if out.dtype == "f32" else k.ub("narrow", out.dtype, each)

    def run(self, walk: Walk) -> None:
        k, a, t = self.k, self.a, self.t
        group = k.let("group", k.core // 2)
        self.of.start()
        with k.loop("tv", group, walk.total, k.cores) as number:
            s = walk.spot(number)
            half = k.let("share", ceildiv(s.rows, 2))
            skip = k.let("skip", k.sub * half)
            mine = k.let("mine", smin(half, s.rows - skip))
            with k.if_(mine > 0):
                k.fill(self.acc[0], 0.0, mine * t.keys)
            with k.loop("iv", 0, choose(s.pairs > 0, s.pairs + 1, 0)) as i:  # as many rounds as the cube core makes
                ping = k.slot(2, "turnV")
                with k.if_(i < s.pairs):
                    p = walk.pair(s, i)
                    place = Place(p.batch, p.head, k.let("rowOf", p.row + skip), mine, p.key, p.keys)
                    self._add(place, ping, k.let("at", ((group * 2 + ping) * t.rows + skip) * t.keys))
            with k.if_(mine > 0):
                first = k.let("firstOut", ((s.batch * walk.heads + s.head) * a.queries + s.row + skip) * a.keys + s.key)
                self._store(first, mine, s.keys)

    def _add(self, place: Place, ping: Scalar, at: Scalar) -> None:
        k, t = self.k, self.t
        with k.if_(place.rows > 0):
            self.of.load_rows(place)
        k.cross_wait(SCORES_READY)
        with k.if_(place.rows > 0):
            slot = ping if t.score_slots == 2 else 0
            _, ds = self.of.compute(place, slot, self.scores, self.dprobs, at)
            assert ds is not None
            k.v("Add", self.acc[0], self.acc[0], ds, count=place.rows * t.keys)
        k.cross_set("MTE2", PROBS_READY)

    def _store(self, first: Scalar, rows: Scalar, keys: Scalar) -> None:
        k, t, given = self.k, self.t, self.acc[0]
        unit = 8
        if self.narrow is not None:
            given, unit = self.narrow[0], 16
            k.cast(given, self.acc[0], rows * t.keys)
        gap = k.let("gap", (t.keys - keys) // unit)
        k.store(self.out[first], given, keys, rows, pitch=self.a.keys, src_gap=gap)


def attention_mask_grad_kernel(
    name: str, caps: Capacities, t: Tile, a: Attention, dtype: str, source: Sequence[str] = ()
) -> Kernel:
    """The gradient in ``dtype`` [B or 1, N or 1, S, T], as the mask has batches and heads."""
    k = KernelBuilder(name, "mix", caps, source)
    x = declare_inputs(k, a)
    walk = Walk(k, a, t, x.packed)
    out = k.gm("dmask", dtype, (walk.batches, walk.heads, a.queries, a.keys), "out")
    groups = (caps.aic, 2, t.rows, t.keys)
    scores = k.gm("scores", "f32", groups, "inout", "workspace")
    dprobs = k.gm("dprobs", "f32", groups, "inout", "workspace")
    with k.on_cube():
        _Cube(k, a, t, x, scores, dprobs).run(walk)
    with k.else_():
        _Vector(k, a, t, x, scores, dprobs, out).run(walk)
    grad_witnesses(k, a, t)
    return k.finish(smax(1, walk.total))
