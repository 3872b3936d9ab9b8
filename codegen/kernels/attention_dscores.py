"""The softmax and the gradient of its scores on a vector core, from what forward saved of each row."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import GmTensor, LocalRef
from moec.codegen.kernels.attention import LEAST, TINY
from moec.codegen.kernels.attention_panels import Inputs
from moec.codegen.kernels.attention_scores import Place, Scores, by_rows, spread
from moec.codegen.kernels.attention_tile import Attention, Tile
from moec.codegen.scalar import Scalar, align


class ScoreGradients:
    """p = e^(score - max) / sum and p (dy v^T - delta) of a vector core's half of a tile."""

    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, x: Inputs):
        self.k, self.a, self.t, self.x = k, a, t, x
        half, each = t.half, t.half * t.keys
        self.s = k.ub("s", "f32", each, t.score_slots)
        self.dp = k.ub("dp", "f32", each, t.score_slots)
        self.top, self.total, self.delta = (k.ub(f"{n}Rows", "f32", half) for n in ("max", "sum", "delta"))
        self.each_top, self.each_total, self.each_delta = (
            k.ub(f"each{n}", "f32", half * 8) for n in ("Max", "Sum", "Delta")
        )
        self.scores = Scores(k, a, t, x.mask)

    def start(self) -> None:
        """Constants of the whole kernel."""
        self.scores.start()
        for rows in (self.top, self.total, self.delta):
            self.k.fill(rows[0], 0.0, self.t.half)

    def load_rows(self, place: Place) -> None:
        """What forward saved of the rows of ``place``, and their delta; before the scores are awaited."""
        k, a, t, x = self.k, self.a, self.t, self.x
        first = k.let("first", (place.batch * a.heads + place.head) * a.queries + place.row)
        filled = k.let("filled", align(place.rows, 8) - place.rows)
        for rows, of in ((self.top, x.softmax_max), (self.total, x.softmax_sum), (self.delta, x.delta)):
            k.load(rows[0], of[first], place.rows, pad=0.0, right=filled)
        if a.zero_empty:
            k.v("Maxs", self.top[0], self.top[0], scalar=LEAST, count=t.half)
            k.v("Maxs", self.total[0], self.total[0], scalar=TINY, count=t.half)
        spread(k, self.each_top[0], self.top[0], t.half)
        spread(k, self.each_total[0], self.total[0], t.half)
        spread(k, self.each_delta[0], self.delta[0], t.half)

    def compute(self, place: Place, slot: Scalar, scores: GmTensor, dprobs: GmTensor, at: Scalar,
                slope: LocalRef | None = None) -> tuple[LocalRef, LocalRef]:  # fmt: skip
        """The softmax and the gradient by its scores, from the products at ``at`` of the workspace; ``slope`` becomes
        what a soft cap multiplies gradients by."""
        k, t, rows = self.k, self.t, place.rows
        s, dp = self.s[slot], self.dp[slot]
        self.scores.load(s, scores, at, place)
        self.scores.load(dp, dprobs, at, place)
        self.scores.finish(s, place, slope)
        by_rows(k, "Sub", s, s, self.each_top[0], rows, t.keys, t.keys, True)
        k.v("Exp", s, s, count=rows * t.keys)
        by_rows(k, "Div", s, s, self.each_total[0], rows, t.keys, t.keys, True)
        by_rows(k, "Sub", dp, dp, self.each_delta[0], rows, t.keys, t.keys, True)
        k.v("Mul", dp, dp, s, count=rows * t.keys)
        return s, dp
