"""The softmax and the gradient of its scores on a vector core, from what forward saved of each row."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import Buffer, GmTensor, LocalRef
from moec.codegen.kernels.attention import LEAST, TINY
from moec.codegen.kernels.attention_panels import Inputs
from moec.codegen.kernels.attention_scores import Place, Scores, by_rows, spread
from moec.codegen.kernels.attention_tile import Attention, Tile
from moec.codegen.scalar import Scalar, align


@dataclass(frozen=True, slots=True)
class Rows:
    """One number a row of a tile, ``of`` device memory, and as a block of 32 bytes ``each``; ``least`` it is taken to
    be where rows that attend nothing give zeros."""

    of: GmTensor
    rows: Buffer
    each: Buffer
    least: float | None


class ScoreGradients:
    """p = e^(score - max) / sum and p (dy v^T - delta) of a vector core's half of a tile."""

    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, x: Inputs):
        self.k, self.a, self.t, self.x = k, a, t, x
        half, each = t.half, t.half * t.keys
        self.s = k.ub("s", "f32", each, t.score_slots)
        self.dp = None if x.delta is None else k.ub("dp", "f32", each, t.score_slots)
        given = (("max", x.softmax_max, LEAST), ("sum", x.softmax_sum, TINY), ("delta", x.delta, None))
        self.rows = [
            Rows(of, k.ub(f"{n}Rows", "f32", half), k.ub(f"{n}Each", "f32", half * 8), least)
            for n, of, least in given
            if of is not None
        ]
        self.scores = Scores(k, a, t, x.mask, x.packed)

    def start(self) -> None:
        """Constants of the whole kernel."""
        self.scores.start()
        for r in self.rows:
            self.k.fill(r.rows[0], 0.0, self.t.half)

    def load_rows(self, place: Place) -> None:
        """What forward saved of the rows of ``place``, and their delta; before the scores are awaited."""
        k, a, t = self.k, self.a, self.t
        first = k.let("first", (place.batch * a.heads + place.head) * a.queries + place.row)
        filled = k.let("filled", align(place.rows, 8) - place.rows)
        for r in self.rows:
            k.load(r.rows[0], r.of[first], place.rows, pad=0.0, right=filled)
        for r in self.rows:
            if r.least is not None and a.zero_empty:
                k.v("Maxs", r.rows[0], r.rows[0], scalar=r.least, count=t.half)
            spread(k, r.each[0], r.rows[0], t.half)

    def compute(self, place: Place, slot: Scalar, scores: GmTensor, dprobs: GmTensor | None, at: Scalar,
                slope: LocalRef | None = None) -> tuple[LocalRef, LocalRef | None]:  # fmt: skip
        """The softmax and the gradient by its scores, from the products at ``at`` of the workspace; ``slope`` becomes
        what a soft cap multiplies gradients by."""
        k, t, rows = self.k, self.t, place.rows
        s, dp = self.s[slot], None if self.dp is None else self.dp[slot]
        self.scores.load(s, scores, at, place)
        if dp is not None and dprobs is not None:
            self.scores.load(dp, dprobs, at, place)
        self.scores.finish(s, place, slope)
        top, total, *delta = (r.each[0] for r in self.rows)
        by_rows(k, "Sub", s, s, top, rows, t.keys, t.keys, True)
        k.v("Exp", s, s, count=rows * t.keys)
        by_rows(k, "Div", s, s, total, rows, t.keys, t.keys, True)
        if dp is not None:
            by_rows(k, "Sub", dp, dp, delta[0], rows, t.keys, t.keys, True)
            k.v("Mul", dp, dp, s, count=rows * t.keys)
        return s, dp
