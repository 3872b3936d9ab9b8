"""Sorted lists in device memory merged two by two until a row is one list, by all cores.

The outputs of a merge are cut into tiles. Where a tile begins in either list a binary search finds: of the first d
outputs, a come from the earlier list, where a is the least such that its element a is below element d - 1 - a of the
later one (merge path; Green et al., arXiv 1406.2628). So tiles do not depend on one another, and of equal elements the
earlier list's come first.
"""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import Buffer, GmTensor
from moec.codegen.kernels.vector.sort import Extractor, Outputs, Sort, merge
from moec.codegen.scalar import Scalar, Var, binary, both, ceildiv, choose, eq, smax, smin

TILE = 2048
"""Records of a tile, of either list at most; a list of MrgSort holds 4095 (CANN asc-devkit docs)."""
LEVELS = 20
"""Levels that 2^31 elements take at most."""


class Merger:
    """The lists of ``s.rows`` rows: list i of a row starts at record i * span and holds what of the row lies there, at
    most ``keep`` records. ``work`` is [2, rows, blocks * block, 2]."""

    def __init__(self, k: KernelBuilder, s: Sort, work: GmTensor):
        self.k, self.s, self.work = k, s, work
        self.pitch = k.let("pitch", binary("*", s.blocks, 2 * s.block))
        self.plane = k.let("plane", binary("*", s.rows, self.pitch))
        self.span = k.counter("span", s.block)
        self.plane_at = k.counter("plane_at", 0)

    def emit(self) -> None:
        """All levels; ``plane_at`` is then where the rows lie."""
        k, s = self.k, self.s
        levels = k.let("levels", 0)
        reach = k.let("reach", s.block)
        with k.loop("count", 0, LEVELS), k.if_(reach < s.n):
            k.assign(levels, levels + 1)
            k.assign(reach, reach * 2)
        k.assign(self.span, s.block)
        self.parts = [k.ub(name, "f32", 2 * TILE) for name in ("earlier", "later")]
        self.out = k.ub("merged_out", "f32", 2 * TILE)
        self.probes = [k.ub(name, "f32", 8) for name in ("probe_earlier", "probe_later")]
        k.sync_all()
        with k.loop("level", 0, levels):
            to = k.let("to", self.plane - self.plane_at)
            self._level(to)
            k.sync_all()
            k.assign(self.plane_at, to)
            k.assign(self.span, self.span * 2)

    def _level(self, to: Var) -> None:
        k, s, span = self.k, self.s, self.span
        pairs = k.let("pairs", ceildiv(s.n, span * 2))
        tiles = k.let("tiles", ceildiv(smin(s.keep, smin(span * 2, s.n)), TILE))
        per_row = k.let("per_row", pairs * tiles)
        with k.loop("task", k.core, binary("*", s.rows, per_row), k.cores) as task:
            row = k.let("row", task // per_row)
            pair = k.let("pair", task % per_row // tiles)
            first = k.let("first", pair * span * 2)
            mine = k.let("mine", smin(s.keep, smin(span, s.n - first)))
            theirs = k.let("theirs", smax(0, smin(s.keep, smin(span, s.n - first - span))))
            total = k.let("total", smin(s.keep, mine + theirs))
            at = k.let("at", task % tiles * TILE)
            with k.if_(at < total):
                end = k.let("end", smin(at + TILE, total))
                here = k.let("here", row * self.pitch + first * 2)
                a = k.let("a", self.plane_at + here)
                b = k.let("b", self.plane_at + here + span * 2)
                start, stop = (self._split(a, b, mine, theirs, d) for d in (at, end))
                self._tile(a, b, start, stop, at, end, to + here + at * 2)

    def _split(self, a: Scalar, b: Scalar, mine: Scalar, theirs: Scalar, d: Scalar) -> Var:
        """How many of the first ``d`` outputs come from the list at ``a``."""
        k = self.k
        low, high = k.let("low", smax(0, d - theirs)), k.let("high", smin(d, mine))
        steps = k.let("steps", 0)
        left = k.let("left", high - low)
        with k.loop("count", 0, 32), k.if_(left > 0):
            k.assign(steps, steps + 1)
            k.assign(left, left // 2)
        with k.loop("step", 0, steps), k.if_(low < high):
            middle = k.let("middle", (low + high) // 2)
            k.load(self.probes[0][0], self.work[a + middle * 2], 2)
            k.load(self.probes[1][0], self.work[b + (d - 1 - middle) * 2], 2)
            ours, other = k.read("ours", self.probes[0][0]), k.read("other", self.probes[1][0])
            taken = k.let("taken", ours >= other)
            k.assign(high, choose(taken, high, middle))
            k.assign(low, choose(taken, middle + 1, low))
        return low

    def _tile(self, a: Scalar, b: Scalar, start: Var, stop: Var, at: Scalar, end: Scalar, to: Scalar) -> None:
        """Outputs ``at`` to ``end``, records ``start`` to ``stop`` of the list at ``a`` among them."""
        k = self.k
        mine = k.let("from_a", stop - start)
        theirs = k.let("from_b", end - at - mine)
        with k.if_(mine > 0):
            k.load(self.parts[0][0], self.work[a + start * 2], mine * 2)
        with k.if_(theirs > 0):
            k.load(self.parts[1][0], self.work[b + (at - start) * 2], theirs * 2)
        with k.if_(eq(theirs, 0)):
            k.store(self.work[to], self.parts[0][0], mine * 2)
        with k.if_(eq(mine, 0)):
            k.store(self.work[to], self.parts[1][0], theirs * 2)
        with k.if_(both(mine > 0, theirs > 0)):
            merge(k, self.out[0], [p[0] for p in self.parts], [mine, theirs])
            k.store(self.work[to], self.out[0], (end - at) * 2)


def emit_merges(k: KernelBuilder, s: Sort, work: GmTensor, out: Outputs) -> Scalar:
    """Merges the sorted blocks in ``work`` and stores what is wanted of each row. Returns how many cores are wanted."""
    merger = Merger(k, s, work)
    with k.reuse():
        merger.emit()
    with k.reuse():
        _extract(k, s, work, out, merger)
    return smax(1, binary("*", s.rows, s.blocks))


def _extract(k: KernelBuilder, s: Sort, work: GmTensor, out: Outputs, merger: Merger) -> None:
    records: Buffer = k.ub("records_in", "f32", 2 * TILE, 2)
    extractor = Extractor(k, s, out, TILE, None, None)
    tiles = ceildiv(s.keep, TILE)
    with k.loop("task", k.core, binary("*", s.rows, tiles), k.cores) as task:
        ping = k.slot(2)
        row, first = k.let("row", task // tiles), k.let("first", task % tiles * TILE)
        count = k.let("count", smin(TILE, s.keep - first))
        at = merger.plane_at + row * merger.pitch + first * 2
        k.load(records[ping], work[at], count * 2)
        extractor.store(records[ping], row * s.keep + first, count)
