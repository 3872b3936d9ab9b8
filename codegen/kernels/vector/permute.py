"""Token rows sorted by expert, stable in (token, slot).

Each core has a contiguous block of tokens. It counts its slots per expert (vector), leaves the counts in a workspace,
and after all cores have, starts every expert at: slots of lower experts, plus slots of the same expert on earlier
cores. Then positions follow one by one, and each row is copied to its K places while the next is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, GmTensor, Kernel, LocalRef
from moec.codegen.kernels.vector.assemble import balanced
from moec.codegen.kernels.vector.tile import BLOCK, LANES, MAX_REPEAT
from moec.codegen.scalar import Scalar, Var, align, ceildiv, smax, smin

COUNTED = 240
"""Slots counted at once: one repeat each, and a whole number of blocks."""
ROW_BYTES = 48 * 1024
"""Bytes of token rows fetched at once."""
TOKENS = 128
"""Most tokens fetched at once."""


@dataclass(frozen=True)
class Permute:
    """x [T, hidden] of ``dtype``, experts [T, top_k]."""

    hidden: int
    top_k: int
    experts: int
    dtype: str
    most_tokens: int = 2**31 - 1


def permute_kernel(name: str, caps: Capacities, p: Permute) -> Kernel:
    """x, experts, counts, a workspace [cores, E] i32 to rows [T*K, H] and positions [T, K] i32; argument: tokens T."""
    k = KernelBuilder(name, "aiv", caps)
    tokens = k.arg("tokens", 0, p.most_tokens)
    x = k.gm("x", p.dtype, (tokens, p.hidden), "in")
    experts = k.gm("experts", "i32", (tokens, p.top_k), "in", "index")
    counts = k.gm("counts", "i32", (p.experts,), "in", "counts")
    work = k.gm("work", "i32", (caps.aiv, p.experts), "out", "workspace")
    rows = k.gm("rows", p.dtype, (tokens * p.top_k, p.hidden), "out")
    positions = k.gm("positions", "i32", (tokens, p.top_k), "out", "index")
    body = _Body(k, p, tokens, x, experts, counts, work, rows, positions)
    body.emit()
    for t, cores in ((0, 1), (1, 1), (7, 1), (700, 1), (5, 3), (2011, 3)):
        k.witness(cores, tokens=t)
    return k.finish(smax(1, tokens))


class _Body:
    def __init__(
        self,
        k: KernelBuilder,
        p: Permute,
        tokens: Scalar,
        x: GmTensor,
        experts: GmTensor,
        counts: GmTensor,
        work: GmTensor,
        rows: GmTensor,
        positions: GmTensor,
    ):
        self.k, self.p, self.tokens = k, p, tokens
        self.x, self.experts, self.counts, self.work = x, experts, counts, work
        self.rows, self.positions = rows, positions
        self.lanes = -(-p.experts // LANES) * LANES
        self.width = -(-p.experts // BLOCK) * BLOCK
        self.start = k.ub("start", "i32", self.width)
        per = k.let("block", ceildiv(tokens, k.cores))
        self.first = k.let("first_token", smin(tokens, k.core * per))
        self.count = k.let("my_tokens", smin(per, tokens - self.first))

    def emit(self) -> None:
        k = self.k
        with k.reuse():
            k.comment("slots of this core per expert")
            self._histogram()
            k.comment("where each expert's rows begin")
            self._prefix()
        k.sync_all()
        with k.reuse():
            self._earlier_cores()
        k.comment("rows to their places")
        if self.p.hidden * ITEMSIZE[self.p.dtype] <= ROW_BYTES:
            self._copy_tiles()
        else:
            self._copy_long_rows()

    # -- counting

    def _histogram(self) -> None:
        """Counts by comparing each slot's expert with the lane numbers: lane - expert is 0 in one lane of its row."""
        k, top_k = self.k, self.p.top_k
        lane, misses = k.ub("lane", "f32", self.lanes), k.ub("misses", "f32", self.lanes)
        ids, ids32 = k.ub("ids", "i32", COUNTED, 2), k.ub("ids32", "f32", COUNTED)
        blocks, apart = k.ub("blocks", "f32", COUNTED * BLOCK), k.ub("apart", "f32", COUNTED * LANES)
        found = k.ub("found", "i32", self.lanes)
        k.v("ArithProgression", lane[0], firstValue=0.0, diffValue=1.0, count=self.lanes)
        k.fill(misses[0], 0.0, self.lanes)
        slots = k.let("my_slots", self.count * top_k)
        with k.loop("s", 0, slots, COUNTED) as s:
            ping = k.slot(2, "ping")
            n = k.let("n", smin(COUNTED, slots - s))
            k.load(ids[ping], self.experts[self.first * top_k + s], n, pad=0, right=align(n, BLOCK) - n)
            k.cast(ids32[0], ids[ping], align(n, BLOCK), "RINT")
            k.v("Brcb", blocks[0], ids32[0], repeatTime=ceildiv(n, BLOCK), dstBlkStride=1, dstRepStride=BLOCK)
            with k.loop("j", 0, self.lanes, LANES) as j:
                k.v(
                    "Sub.rep",
                    apart[0],
                    lane[0][j],
                    blocks[0],
                    mask=LANES,
                    repeatTime=n,
                    dstBlkStride=1,
                    src0BlkStride=1,
                    src1BlkStride=0,
                    dstRepStride=BLOCK,
                    src0RepStride=0,
                    src1RepStride=1,
                )
                k.v("Abs", apart[0], apart[0], count=n * LANES)
                k.v("Mins", apart[0], apart[0], scalar=1.0, count=n * LANES)
                k.v(
                    "Add.rep",
                    misses[0][j],
                    apart[0],
                    misses[0][j],
                    mask=LANES,
                    repeatTime=n,
                    dstBlkStride=1,
                    src0BlkStride=1,
                    src1BlkStride=1,
                    dstRepStride=0,
                    src0RepStride=BLOCK,
                    src1RepStride=0,
                )
        k.v("Muls", misses[0], misses[0], scalar=-1.0, count=self.lanes)
        k.v("Adds", misses[0], misses[0], scalar=slots, count=self.lanes)
        k.cast(found[0], misses[0], self.lanes, "RINT")
        k.store(self.work[k.core * self.p.experts], found[0], self.p.experts)

    def _prefix(self) -> None:
        """start[e] = slots of lower experts."""
        k = self.k
        counts = k.ub("counts_in", "i32", self.width)
        k.load(counts[0], self.counts[0], self.p.experts)
        if self.width > self.p.experts:
            k.fill(self.start[0], 0, self.width)
        below = k.let("below", 0)
        with k.loop("e", 0, self.p.experts) as e:
            k.write(self.start[0][e], below)
            k.assign(below, below + k.read("of_expert", counts[0][e]))

    def _earlier_cores(self) -> None:
        """start[e] += slots of expert e on the cores before this one."""
        k, e = self.k, self.p.experts
        before = max(1, k.capacities.aiv - 1)
        most = min(MAX_REPEAT, max(1, 64 * 1024 // (self.width * 4)), before)
        table = k.ub("table", "i32", most * self.width)
        with k.loop("c", 0, k.core, most) as c:
            n = k.let("n", smin(most, k.core - c))
            ragged = self.width > e
            k.load(table[0], self.work[c * e], e, n, pad=0 if ragged else None, right=self.width - e)
            with k.loop("j", 0, self.width, LANES) as j:
                mask: Scalar = LANES if self.width % LANES == 0 else smin(LANES, self.width - j)
                self._accumulate(self.start[0][j], table[0][j], mask, n)

    def _accumulate(self, to: LocalRef, rows: LocalRef, mask: Scalar, n: Scalar) -> None:
        """Adds ``n`` rows of the table; a row longer than a repeat stride reaches is taken row by row."""
        k, stride = self.k, self.width // BLOCK
        if stride <= MAX_REPEAT:
            k.v(
                "Add.rep",
                to,
                rows,
                to,
                mask=mask,
                repeatTime=n,
                dstBlkStride=1,
                src0BlkStride=1,
                src1BlkStride=1,
                dstRepStride=0,
                src0RepStride=stride,
                src1RepStride=0,
            )
            return
        with k.loop("r", 0, n) as r:
            k.v("Add", to, rows[r * self.width], to, count=mask)

    # -- copying

    def _place(self, ids: LocalRef, places: LocalRef, n: Scalar) -> None:
        """places[i] = the next free position of expert ids[i], for i in [0, n)."""
        k = self.k
        with k.loop("i", 0, n) as i:
            expert = k.read("expert", ids[i])
            at = k.read("at", self.start[0][expert])
            k.write(self.start[0][expert], at + 1)
            k.write(places[i], at)

    def _copy_tiles(self) -> None:
        """Several tokens a copy in, one row a copy out."""
        k, p = self.k, self.p
        block = 32 // ITEMSIZE[p.dtype]
        pitch = -(-p.hidden // block) * block
        most = max(1, min(TOKENS, ROW_BYTES // (pitch * ITEMSIZE[p.dtype])))
        tile = k.ub("tile", p.dtype, most * pitch, 2)
        ids, places = k.ub("tile_ids", "i32", most * p.top_k, 2), k.ub("places", "i32", most * p.top_k, 2)
        size = k.let("tile_tokens", balanced(self.count, most, max(1, 16 * 1024 // (pitch * ITEMSIZE[p.dtype]))))
        with k.loop("t", 0, self.count, size) as t:
            ping = k.slot(2, "ping")
            n = k.let("tokens_here", smin(size, self.count - t))
            token = k.let("token", self.first + t)
            k.load(ids[ping], self.experts[token * p.top_k], n * p.top_k)
            if pitch == p.hidden:
                k.load(tile[ping], self.x[token * p.hidden], n * p.hidden)
            else:
                k.load(tile[ping], self.x[token * p.hidden], p.hidden, n)
            self._place(ids[ping], places[ping], n * p.top_k)
            k.store(self.positions[token * p.top_k], places[ping], n * p.top_k)
            with k.loop("r", 0, n) as r, k.loop("j", 0, p.top_k) as j:
                at = k.read("to", places[ping][r * p.top_k + j])
                k.store(self.rows[at * p.hidden], tile[ping][r * pitch], p.hidden)

    def _copy_long_rows(self) -> None:
        """A token at a time, its row in runs of columns."""
        k, p = self.k, self.p
        run = ROW_BYTES // ITEMSIZE[p.dtype]
        piece = k.ub("piece", p.dtype, run, 2)
        ids, places = k.ub("tile_ids", "i32", p.top_k, 2), k.ub("places", "i32", p.top_k, 2)
        with k.loop("t", 0, self.count) as t:
            ping = k.slot(2, "ping")
            token = k.let("token", self.first + t)
            k.load(ids[ping], self.experts[token * p.top_k], p.top_k)
            self._place(ids[ping], places[ping], p.top_k)
            k.store(self.positions[token * p.top_k], places[ping], p.top_k)
            with k.loop("c", 0, p.hidden, run) as c:
                turn: Var = k.slot(2, "turn")
                n = k.let("columns", smin(run, p.hidden - c))
                k.load(piece[turn], self.x[token * p.hidden + c], n)
                with k.loop("j", 0, p.top_k) as j:
                    at = k.read("to", places[ping][j])
                    k.store(self.rows[at * p.hidden + c], piece[turn], n)
