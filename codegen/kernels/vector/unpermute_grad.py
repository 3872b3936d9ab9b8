"""Gradients of unpermute: each token's dy goes to its K rows times the token's weights, and each weight's gradient is
the dot product of dy with its row.

A dot product is gathered in 64 lanes over the columns in ascending order and summed once, all of a tile by one
instruction; every row is written by one core only.
"""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, Kernel, LocalRef
from moec.codegen.kernels.vector.tile import BLOCK, LANES, MAX_REPEAT
from moec.codegen.kernels.vector.token_tiles import TokenTiles
from moec.codegen.scalar import Scalar, Var, smax

DOTS = 128
"""Most dot products of a tile: their lanes take 32 KiB."""
ROW_SLOTS = 2
"""Rows under way at the same time, beside two of dy: more would need more events than a pipe pair has."""


@dataclass(frozen=True)
class UnpermuteGrad:
    """``rows_dtype`` None: no gradient of the weights; ``weights_dtype`` None: rows count as they are."""

    hidden: int
    top_k: int
    dtype: str
    rows_dtype: str | None
    weights_dtype: str | None
    most_tokens: int = 2**31 - 1


def unpermute_grad_kernel(name: str, caps: Capacities, u: UnpermuteGrad) -> Kernel:
    """dy [T, H], rows [S, H], positions [T, K] i32, weights [T, K] to drows [S, H] and dweights [T, K]; arguments
    tokens T and slots S."""
    k = KernelBuilder(name, "aiv", caps)
    body = _Body(k, u)
    body.emit()
    t = body.most
    for tokens, cores in ((0, 1), (1, 1), (5, 1), (6 * t + 1, 1), (11, 2), (5 * t * 2 + 3, 2)):
        k.witness(cores, tokens=tokens, slots=tokens * u.top_k)
    return k.finish(smax(1, body.tokens))


class _Body(TokenTiles):
    """A token's dy to its K rows, and the dot products with them."""

    def __init__(self, k: KernelBuilder, u: UnpermuteGrad):
        self.u = u
        tokens, slots = k.arg("tokens", 0, u.most_tokens), k.arg("slots")
        self.dy = k.gm("dy", u.dtype, (tokens, u.hidden), "in")
        self.rows = None if u.rows_dtype is None else k.gm("rows", u.rows_dtype, (slots, u.hidden), "in")
        positions = k.gm("positions", "i32", (tokens, u.top_k), "in", "index")
        given = u.weights_dtype
        weights = None if given is None else k.gm("weights", given, (tokens, u.top_k), "in")
        self.drows = k.gm("drows", u.dtype, (slots, u.hidden), "out")
        self.dweights = None
        if self.rows is not None and given is not None:
            self.dweights = k.gm("dweights", given, (tokens, u.top_k), "out")
        super().__init__(k, tokens, u.hidden, u.top_k, max(1, DOTS // u.top_k), positions, weights)
        self._buffers()

    def _buffers(self) -> None:
        k, u, per = self.k, self.u, self.most * self.top_k
        each = 2 * ITEMSIZE[u.dtype] * 2 + (0 if u.dtype == "f32" else 8)
        if u.rows_dtype is not None:
            self.lanes = k.ub("lanes", "f32", per * LANES)
            self.dots = k.ub("dots", u.weights_dtype or "f32", per, 2)
            self.dots32 = self.dots if u.weights_dtype == "f32" else k.ub("dots32", "f32", per)
            each += ROW_SLOTS * ITEMSIZE[u.rows_dtype] + 4
        run = min((k.free("UB") - 1024) // each, MAX_REPEAT * LANES)
        self.run = u.hidden if u.hidden <= run else run // LANES * LANES
        self.grad = k.ub("grad", u.dtype, self.run, 2)
        self.grad32 = None if u.dtype == "f32" else k.ub("grad32", "f32", self.run)
        self.out = k.ub("out", u.dtype, self.run, 2)
        self.out32 = None if u.dtype == "f32" else k.ub("out32", "f32", self.run)
        if u.rows_dtype is not None:
            self.row = k.ub("row", u.rows_dtype, self.run, ROW_SLOTS)
            self.product = k.ub("product", "f32", self.run)

    def begin(self, count: Scalar) -> None:
        if self.rows is not None:
            self.k.fill(self.lanes[0], 0.0, count * (self.top_k * LANES))

    def columns(self, ping: Var, first: Scalar, n: Scalar, c: Scalar, columns: Scalar) -> None:
        """Columns ``c``.. of one token."""
        k, u = self.k, self.u
        turn = k.slot(2, "turn")
        k.load(self.grad[turn], self.dy[(first + n) * u.hidden + c], columns)
        grad = self.grad[turn]
        if self.grad32 is not None:
            grad = self.grad32[0]
            k.cast(grad, self.grad[turn], columns)
        with k.loop("j", 0, u.top_k) as j:
            at = k.read("position", self.index[ping][n * u.top_k + j])
            to = self.out[k.slot(2, "ring")]
            wide = to if self.out32 is None else self.out32[0]
            if self.weights is None:
                k.v("Muls", wide, grad, scalar=1.0, count=columns)
            else:
                assert self.factor32 is not None
                factor = k.read("weight", self.factor32[ping][n * u.top_k + j])
                k.v("Muls", wide, grad, scalar=factor, count=columns)
            if wide is not to:
                k.cast(to, wide, columns)
            k.store(self.drows[at * u.hidden + c], to, columns)
            if self.rows is not None:
                slot = k.slot(ROW_SLOTS, "arrival")
                k.load(self.row[slot], self.rows[at * u.hidden + c], columns)
                self._dot(grad, self.row[slot], self.lanes[0][(n * u.top_k + j) * LANES], columns)

    def _dot(self, grad: LocalRef, row: LocalRef, lanes: LocalRef, columns: Scalar) -> None:
        """Adds the products of a run of columns to 64 lanes."""
        k, product = self.k, self.product[0]
        if row.dtype != "f32":
            k.cast(product, row, columns)
            row = product
        k.v("Mul", product, grad, row, count=columns)

        def fold(at: Scalar, mask: Scalar, repeat: Scalar) -> None:
            strides = {"dstBlkStride": 1, "src0BlkStride": 1, "src1BlkStride": 1, "dstRepStride": 0}
            k.v(
                "Add.rep",
                lanes,
                product[at],
                lanes,
                mask=mask,
                repeatTime=repeat,
                **strides,
                src0RepStride=BLOCK,
                src1RepStride=0,
            )

        whole, rest = columns // LANES, columns % LANES
        if isinstance(columns, int):
            if columns >= LANES:
                fold(0, LANES, whole)
            if columns % LANES:
                fold(columns // LANES * LANES, rest, 1)
            return
        with k.if_(whole > 0):
            fold(0, LANES, whole)
        with k.if_(rest > 0):
            fold(whole * LANES, rest, 1)

    def end(self, ping: Var, first: Scalar, count: Scalar) -> None:
        """The tile's gradients of the weights."""
        if self.dweights is None:
            return
        k, slots = self.k, count * self.top_k
        dots = self.dots32[ping if self.dots32 is self.dots else 0]
        k.v(
            "WholeReduceSum",
            dots,
            self.lanes[0],
            mask=LANES,
            repeatTime=slots,
            dstRepStride=1,
            srcBlkStride=1,
            srcRepStride=BLOCK,
        )
        if self.dots32 is not self.dots:
            k.cast(self.dots[ping], dots, slots)
        k.store(self.dweights[first * self.u.top_k], self.dots[ping], slots)
