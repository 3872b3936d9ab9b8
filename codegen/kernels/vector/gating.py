"""Routing in one kernel: scores, choice, top-k, weights, tokens per expert.

A tile is some tokens; the lanes of a token are its experts, each group padded to a multiple of 32 for the sort. Lanes
that are no expert hold -inf and sort last; NaN scores count as +inf, so they are chosen first, as the reference has it,
and never a lane that is no expert. The chosen lanes are found again by value (and lane, at ties) to be counted without
a scalar loop; every core adds its counts to device memory, which must hold zeros.
"""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.instructions.layout import SORT_ALIGN
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, GmTensor, Kernel, LocalRef
from moec.codegen.kernels.vector.assemble import balanced
from moec.codegen.kernels.vector.functions import sigmoid, softmax
from moec.codegen.kernels.vector.groups import GroupLimit
from moec.codegen.kernels.vector.routing import Gating
from moec.codegen.kernels.vector.stage import Scratch, Stage
from moec.codegen.kernels.vector.tile import BLOCK, LANES, MAX_REPEAT
from moec.codegen.kernels.vector.topk import RUN, Sorter, gather, offset_table
from moec.codegen.kernels.vector.values import Val, Values
from moec.codegen.scalar import Scalar, align, ceildiv, smax, smin
from moec.diagnostics import Problem, Refusal, Where

INF = float("inf")
BIG = 1e38
"""Its square is infinite in f32: turns the sign of a number into -inf or +inf."""


def gating_kernel(name: str, caps: Capacities, g: Gating, source: str = "") -> Kernel:
    """logits [T, E], score_bias [E] to weights and experts [T, K], counts [E] i32 (added to); argument tokens."""
    if g.lanes // RUN > MAX_REPEAT or g.groups > RUN or g.top_k > LANES:
        what = f"gating of {g.experts} experts in {g.groups} groups, top {g.top_k}, has no kernel"
        raise Refusal(
            Problem(
                what, Where(node=source), f"up to {MAX_REPEAT * RUN} experts, {RUN} groups and top {LANES} have one"
            )
        )
    rows = min(MAX_REPEAT * RUN // g.lanes, MAX_REPEAT // g.groups, 64)
    while True:
        rows = max(g.even, rows // g.even * g.even)
        try:
            return _kernel(name, caps, g, rows)
        except Refusal:
            if rows <= g.even:
                raise
            rows -= max(g.even, rows // 8)


def _kernel(name: str, caps: Capacities, g: Gating, rows: int) -> Kernel:
    k = KernelBuilder(name, "aiv", caps)
    tokens = k.arg("tokens", 0, g.most_tokens)
    logits = k.gm("logits", g.dtype, (tokens, g.experts), "in")
    bias = None if g.bias_dtype is None else k.gm("score_bias", g.bias_dtype, (g.experts,), "in", "weight")
    weights = k.gm("weights", g.weights_dtype, (tokens, g.top_k), "out")
    experts = k.gm("experts", "i32", (tokens, g.top_k), "out", "index")
    counts = k.gm("counts", "i32", (g.experts,), "inout", "counts")
    _Body(k, g, rows, tokens, logits, bias, weights, experts, counts).emit()
    for t, cores in ((0, 1), (1, 1), (rows, 1), (6 * rows + 1, 1), (3, 2), (11 * rows + 3, 2)):
        k.witness(cores, tokens=t)
    return k.finish(smax(1, ceildiv(tokens, 2)))


class _Body:
    """Tables built once, then tile by tile: scores and choice, sort, weights, counts."""

    def __init__(
        self,
        k: KernelBuilder,
        g: Gating,
        rows: int,
        tokens: Scalar,
        logits: GmTensor,
        bias: GmTensor | None,
        weights: GmTensor,
        experts: GmTensor,
        counts: GmTensor,
    ):
        self.k, self.g, self.rows, self.tokens = k, g, rows, tokens
        self.logits, self.bias, self.weights, self.experts, self.counts = logits, bias, weights, experts, counts
        n, chosen = rows * g.lanes, rows * g.columns
        self.even = g.even
        self.sorter = Sorter(k, rows, g.lanes, g.top_k, "all")
        self.lane_index = k.ub("lane_index", "i32", n, align=SORT_ALIGN)
        self.logits_in = k.ub("logits_in", g.dtype, n, 2)
        scores_are_input = g.dtype == "f32" and g.score_order != "before_topk"
        self.scores = None if scores_are_input else k.ub("scores", "f32", n)
        self.choice = k.ub("choice", "f32", n, align=SORT_ALIGN)
        self.lane_row = k.ub("lane_row", "f32", g.lanes)
        self.found = k.ub("found", "f32", g.lanes)
        self.weight, self.lane = k.ub("weight", "f32", chosen), k.ub("lane", "i32", chosen)
        self.weights_out = k.ub("weights_out", g.weights_dtype, rows * g.top_k, 2)
        self.experts_out = k.ub("experts_out", "i32", rows * g.top_k, 2)
        cap = -(-rows // LANES) * LANES
        self.least, self.least_lane = k.ub("least", "f32", cap), k.ub("least_lane", "f32", cap)
        self.least_bits = k.ub("least_bits", "i32", rows)
        self.pad_row = k.ub("pad_row", "f32", g.lanes) if g.padded else None
        self.bias_row = None if bias is None else k.ub("bias_row", "f32", g.lanes)
        self.expert_of = k.ub("expert_of", "i32", g.lanes) if g.padded and g.groups > 1 else None

    # -- once

    def emit(self) -> None:
        k, g = self.k, self.g
        self._tables()
        scratch = Scratch(k)
        self.limit: GroupLimit | None = None
        if g.groups > 1:
            self.limit = GroupLimit(k, scratch, g, self.rows, self.choice, self.lane_index, self.sorter.buffers[0])
        choose = self._choose(scratch)
        weigh = self._weigh(scratch)
        count = self._count(scratch)
        filled: set[str] = set()
        for stage in (choose, weigh, count):
            stage.fill_cols(filled)
        k.fill(self.least[0], 0.0, self.least.elems)
        k.fill(self.least_lane[0], 0.0, self.least_lane.elems)
        k.fill(self.found[0], 0.0, g.lanes)
        even, per_core = self.even, ceildiv(self.tokens, k.cores)
        size = k.let("tile_tokens", align(balanced(per_core, self.rows, 4), even))
        with k.loop("t", k.core, ceildiv(self.tokens, size), k.cores) as t:
            ping = k.slot(2)
            first = k.let("first", t * size)
            rows = k.let("rows", smin(size, self.tokens - first))
            whole = rows if even == 1 else k.let("whole_rows", align(rows, even))
            self._load(ping, first, rows)
            choose.emit(whole, ping)
            if self.limit is not None:
                self.limit.emit(whole)
                self._hide_pads(whole)
            self.sorter.sort(self.choice[0], self.lane_index[0].cast("u32"), whole)
            self._extract(whole, ping)
            weigh.emit(whole, ping)
            self._hand_out(ping, first, rows, whole)
            count.emit(whole)
            self._add_up(rows)
        self._publish()

    def _tables(self) -> None:
        """Lane numbers, the expert of each lane, -inf for lanes that are none, the bias, offsets for Gather."""
        k, g = self.k, self.g
        with k.loop("r", 0, self.rows) as r:
            k.v("ArithProgression", self.lane_index[0][r * g.lanes], firstValue=0, diffValue=1, count=g.lanes)
        k.v("ArithProgression", self.lane_row[0], firstValue=0.0, diffValue=1.0, count=g.lanes)
        if self.pad_row is not None:
            with k.loop("group", 0, g.groups) as group:
                k.v(
                    "ArithProgression",
                    self.pad_row[0][group * g.group_lanes],
                    firstValue=0.0,
                    diffValue=1.0,
                    count=g.group_lanes,
                )
                if self.expert_of is not None:
                    k.v(
                        "ArithProgression",
                        self.expert_of[0][group * g.group_lanes],
                        firstValue=group * g.group_size,
                        diffValue=1,
                        count=g.group_lanes,
                    )
            k.v("Muls", self.pad_row[0], self.pad_row[0], scalar=-1.0, count=g.lanes)
            k.v("Adds", self.pad_row[0], self.pad_row[0], scalar=g.group_size - 0.5, count=g.lanes)
            for _ in range(2):
                k.v("Muls", self.pad_row[0], self.pad_row[0], scalar=BIG, count=g.lanes)
        if g.padded or self.even > 1:
            for slot in range(2):
                k.fill(self.logits_in[slot], -INF, self.logits_in.elems)
        if self.bias is not None and self.bias_row is not None:
            with k.reuse():
                raw = self.bias_row if self.bias.dtype == "f32" else k.ub("bias_in", self.bias.dtype, g.lanes)
                if g.padded:
                    k.fill(raw[0], 0.0, g.lanes)
                self._load_lanes(raw[0], self.bias, 0, 1, 0.0)
                if raw is not self.bias_row:
                    k.cast(self.bias_row[0], raw[0], g.lanes)
        record, step = 8, self.sorter.pitch * 8
        last = g.top_k - 1
        self.chosen_at = offset_table(k, "chosen_at", self.rows, g.columns, step, last, record)
        self.token_at = offset_table(k, "token_at", self.rows, g.columns, g.lanes * 4, 0, 0).cast("i32")
        self.least_at = offset_table(k, "least_at", self.rows, 1, step, 0, 0)

    def _load_lanes(self, dst: LocalRef, tensor: GmTensor, first: Scalar, rows: Scalar, pad: float) -> None:
        """Rows of E numbers into lanes; what is left of a lane's last block becomes ``pad``."""
        k, g = self.k, self.g
        size = ITEMSIZE[tensor.dtype]
        block = 32 // size
        if not g.padded:
            k.load(dst, tensor[first * g.experts], rows * g.experts)
            return
        padded = -(-g.group_size // block) * block
        right = padded - g.group_size
        gap = (g.group_lanes - padded) // block
        k.load(
            dst,
            tensor[first * g.experts],
            g.group_size,
            rows * g.groups,
            g.group_size,
            gap,
            pad if right else None,
            right,
        )

    # -- stages

    def _choose(self, scratch: Scratch) -> Stage:
        """Scores of all experts and what they are chosen by."""
        g, v = self.g, Values()
        x = v.input("full", g.dtype)
        places: dict[Val, Buffer | LocalRef] = {x: self.logits_in}
        logits = v.cast(x, "f32")
        scores = logits
        if g.score_order == "before_topk":
            scores = self._score(v, logits)
        if self.scores is not None:
            places[scores] = self.scores
        choice = scores
        if self.bias_row is not None:
            b = v.input("row", "f32")
            places[b] = self.bias_row
            choice = v.add(scores, b)
        choice = v.select(v.compare("EQ", choice, choice), choice, INF)
        if self.pad_row is not None:
            pads = v.input("row", "f32")
            places[pads] = self.pad_row
            choice = v.min(choice, pads)
        places[choice] = self.choice
        v.outputs += [scores, choice]
        return Stage(scratch, v, places, self.rows, g.lanes, g.lanes)

    def _score(self, v: Values, logits: Val) -> Val:
        """Scores in f32, rounded where they are held in 16 bit."""
        scores = softmax(v, logits) if self.g.score == "softmax" else sigmoid(v, logits)
        return v.cast(v.cast(scores, self.g.score_dtype), "f32")

    def _hide_pads(self, rows: Scalar) -> None:
        """Lanes that are no expert at -inf again, where excluded groups became 0."""
        if self.pad_row is None or self.g.group_mask != "zero":
            return
        k, lanes = self.k, self.g.lanes
        stride = lanes // BLOCK
        with k.loop("j", 0, lanes, LANES) as j:
            mask: Scalar = LANES if lanes % LANES == 0 else smin(LANES, lanes - j)
            k.v(
                "Min.rep",
                self.choice[0][j],
                self.choice[0][j],
                self.pad_row[0][j],
                mask=mask,
                repeatTime=rows,
                dstBlkStride=1,
                src0BlkStride=1,
                src1BlkStride=1,
                dstRepStride=stride,
                src0RepStride=stride,
                src1RepStride=0,
            )

    def _extract(self, rows: Scalar, ping: Scalar) -> None:
        """Chosen lanes, their scores, and the last one chosen of each token."""
        k, g, found = self.k, self.g, self.sorter
        count = rows * g.columns
        lanes = self.lane[0].cast("u32")
        gather(k, lanes, found.result.cast("u32"), self.chosen_at, count, found.result_bytes, 4)
        gather(k, self.least[0], found.result, self.least_at, rows, found.result_bytes, (g.top_k - 1) * 8)
        bits = self.least_bits[0]
        gather(
            k,
            bits.cast("u32"),
            found.result.cast("u32"),
            self.least_at,
            rows,
            found.result_bytes,
            (g.top_k - 1) * 8 + 4,
        )
        k.cast(self.least_lane[0], bits, rows, "RINT")
        at = self.weight[0].cast("i32")
        k.v("Muls", at, self.lane[0], scalar=4, count=count)
        k.v("Add", at, at, self.token_at, count=count)
        scores = self.logits_in[ping] if self.scores is None else self.scores[0]
        raw = self.raw_weight[0]
        gather(k, raw, scores, at.cast("u32"), count, self.rows * g.lanes * 4)

    def _weigh(self, scratch: Scratch) -> Stage:
        """Routing weights of the chosen scores."""
        g, v = self.g, Values()
        self.raw_weight = self.k.ub("raw_weight", "f32", self.rows * g.columns)
        s = v.input("full", "f32")
        w = s
        if g.score_order == "after_topk":
            w = self._score(v, w)
        if g.renormalize:
            total = v.row_reduce("Sum", w)
            w = v.div(w, v.scalar("Adds", total, g.renormalize_eps) if g.renormalize_eps else total)
        if g.scale != 1.0 or w is s:
            w = v.scalar("Muls", w, g.scale)
        v.outputs.append(w)
        return Stage(scratch, v, {s: self.raw_weight, w: self.weight}, self.rows, g.top_k, g.columns)

    def _hand_out(self, ping: Scalar, first: Scalar, rows: Scalar, whole: Scalar) -> None:
        """Weights and experts to device memory, dense."""
        k, g = self.k, self.g
        weights, lanes = self.weight[0], self.lane[0]
        count = whole * g.columns
        if self.expert_of is not None:
            at = self.raw_weight[0].cast("i32")
            k.v("Muls", at, lanes, scalar=4, count=count)
            gather(k, lanes.cast("u32"), self.expert_of[0].cast("u32"), at.cast("u32"), count, g.lanes * 4)
        if g.columns == g.top_k:
            k.v("Adds", self.experts_out[ping], lanes, scalar=0, count=count)
        else:
            self._dense(self.experts_out[ping], lanes, whole)
            count = whole * g.top_k
        dense = weights
        if g.columns != g.top_k:
            dense = self.weights_out[ping] if g.weights_dtype == "f32" else self.raw_weight[0]
            self._dense(dense, weights, whole)
        if g.weights_dtype != "f32":
            k.cast(self.weights_out[ping], dense, count)
        elif g.columns == g.top_k:
            k.v("Muls", self.weights_out[ping], dense, scalar=1.0, count=count)
        k.store(self.weights[first * g.top_k], self.weights_out[ping], rows * g.top_k)
        k.store(self.experts[first * g.top_k], self.experts_out[ping], rows * g.top_k)

    def _dense(self, dst: LocalRef, src: LocalRef, rows: Scalar) -> None:
        """The first top_k of every row, one row after the other."""
        g = self.g
        self.k.v(
            "GatherMask",
            dst,
            src,
            pattern=7,
            reduceMode=True,
            mask=g.top_k,
            src0BlockStride=1,
            repeatTimes=rows,
            src0RepeatStride=g.columns // BLOCK,
            src1RepeatStride=0,
        )

    def _count(self, scratch: Scratch) -> Stage:
        """1 in the chosen lanes: better than the last one chosen, or as good and not after it."""
        v = Values()
        choice, lane = v.input("full", "f32"), v.input("row", "f32")
        least, least_lane = v.input("col", "f32"), v.input("col", "f32")
        bound = v.spread(least)
        better, equal = v.compare("GT", choice, bound), v.compare("EQ", choice, bound)
        not_after = v.compare("LE", v.sub(lane, least_lane), 0.0)
        chosen = v.select(v.logic("Or", better, v.logic("And", equal, not_after)), 1.0, 0.0)
        v.outputs.append(chosen)
        places = {choice: self.choice, lane: self.lane_row, least: self.least, least_lane: self.least_lane}
        stage = Stage(scratch, v, places, self.rows, self.g.lanes, self.g.lanes)
        self.chosen = stage.slots[chosen]
        return stage

    # -- counts

    def _add_up(self, rows: Scalar) -> None:
        """found[lane] += chosen of all rows."""
        k, lanes = self.k, self.g.lanes
        with k.loop("j", 0, lanes, LANES) as j:
            mask: Scalar = LANES if lanes % LANES == 0 else smin(LANES, lanes - j)
            if lanes // BLOCK <= MAX_REPEAT:
                k.v(
                    "Add.rep",
                    self.found[0][j],
                    self.chosen[j],
                    self.found[0][j],
                    mask=mask,
                    repeatTime=rows,
                    dstBlkStride=1,
                    src0BlkStride=1,
                    src1BlkStride=1,
                    dstRepStride=0,
                    src0RepStride=lanes // BLOCK,
                    src1RepStride=0,
                )
            else:
                with k.loop("r", 0, rows) as r:
                    k.v("Add", self.found[0][j], self.chosen[r * lanes + j], self.found[0][j], count=mask)

    def _publish(self) -> None:
        """Adds this core's counts to those in device memory."""
        k, g = self.k, self.g
        total = self.lane_index[0]
        k.cast(total, self.found[0], g.lanes, "RINT")
        k.op("SetAtomicAdd", total)
        if g.padded and g.groups > 1:
            block = -(-g.group_size // BLOCK) * BLOCK
            k.store(self.counts[0], total, g.group_size, g.groups, g.group_size, (g.group_lanes - block) // BLOCK)
        else:
            k.store(self.counts[0], total, g.experts)
        k.op("SetAtomicNone")

    def _load(self, ping: Scalar, first: Scalar, rows: Scalar) -> None:
        self._load_lanes(self.logits_in[ping], self.logits, first, rows, -INF)
