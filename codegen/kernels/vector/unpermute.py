"""Expert rows back to tokens: y[t] = sum over k of weights[t, k] * rows[positions[t, k]], in f32, k ascending."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, Buffer, GmTensor, Kernel, LocalRef
from moec.codegen.kernels.vector.token_tiles import TokenTiles
from moec.codegen.scalar import Scalar, Var, smax

TOKENS = 64
"""Most tokens whose positions and weights are fetched at once."""
ROW_SLOTS = 4
"""Rows under way at the same time: each is one copy, whose latency the others hide."""


@dataclass(frozen=True)
class Unpermute:
    """``weights_dtype`` None: rows are summed as they are."""

    hidden: int
    top_k: int
    dtype: str
    weights_dtype: str | None
    most_tokens: int = 2**31 - 1


def unpermute_kernel(name: str, caps: Capacities, u: Unpermute) -> Kernel:
    """rows [S, H], positions [T, K] i32, weights [T, K] to y [T, H]; arguments tokens T and slots S."""
    k = KernelBuilder(name, "aiv", caps)
    tokens, slots = k.arg("tokens", 0, u.most_tokens), k.arg("slots")
    rows = k.gm("rows", u.dtype, (slots, u.hidden), "in")
    positions = k.gm("positions", "i32", (tokens, u.top_k), "in", "index")
    weights = None if u.weights_dtype is None else k.gm("weights", u.weights_dtype, (tokens, u.top_k), "in")
    y = k.gm("y", u.dtype, (tokens, u.hidden), "out")
    body = _Body(k, u, tokens, rows, positions, weights, y)
    body.emit()
    for t, cores in ((0, 1), (1, 1), (5, 1), (6 * TOKENS + 1, 1), (11, 2), (5 * TOKENS * 2 + 3, 2)):
        k.witness(cores, tokens=t, slots=t * u.top_k)
    return k.finish(smax(1, tokens))


class _Body(TokenTiles):
    """The K rows of a token, weighted and added up."""

    def __init__(
        self,
        k: KernelBuilder,
        u: Unpermute,
        tokens: Scalar,
        rows: GmTensor,
        positions: GmTensor,
        weights: GmTensor | None,
        y: GmTensor,
    ):
        super().__init__(k, tokens, u.hidden, u.top_k, TOKENS, positions, weights)
        self.u, self.rows, self.y = u, rows, y
        size = ITEMSIZE[u.dtype]
        wide = size == 4
        each = ROW_SLOTS * size + 2 * size + (0 if wide else 8)
        self.run = min(u.hidden, (k.free("UB") - 1024) // each // 64 * 64)
        self.row = k.ub("row", u.dtype, self.run, ROW_SLOTS)
        self.out = k.ub("out", u.dtype, self.run, 2)
        self.sum: Buffer = self.out if wide else k.ub("sum", "f32", self.run)
        self.row32 = None if wide else k.ub("row32", "f32", self.run)

    def begin(self, count: Scalar) -> None:
        """A tile needs nothing but its positions and weights."""

    def end(self, ping: Var, first: Scalar, count: Scalar) -> None:
        """Each token's columns are stored when they are made."""

    def columns(self, ping: Var, first: Scalar, n: Scalar, c: Scalar, columns: Scalar) -> None:
        """Columns ``c``.. of one token."""
        k, u = self.k, self.u
        turn = k.slot(2, "turn")
        total: LocalRef = self.sum[turn if self.sum is self.out else 0]
        k.fill(total, 0.0, columns)
        with k.loop("j", 0, u.top_k) as j:
            slot = k.slot(ROW_SLOTS, "ring")
            at = k.read("position", self.index[ping][n * u.top_k + j])
            k.load(self.row[slot], self.rows[at * u.hidden + c], columns)
            part = self.row[slot]
            if self.row32 is not None:
                part = self.row32[0]
                k.cast(part, self.row[slot], columns)
            if self.factor32 is None:
                k.v("Add", total, total, part, count=columns)
            else:
                factor = k.read("weight", self.factor32[ping][n * u.top_k + j])
                k.v("Axpy", total, part, scalar=factor, count=columns)
        if self.sum is not self.out:
            k.cast(self.out[turn], total, columns)
        k.store(self.y[(first + n) * u.hidden + c], self.out[turn], columns)
