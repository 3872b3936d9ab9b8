"""Tiles of tokens whose rows stand elsewhere: positions and weights of their K slots, and columns in runs."""

from __future__ import annotations

from abc import ABC, abstractmethod

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import Buffer, GmTensor
from moec.codegen.kernels.vector.assemble import balanced
from moec.codegen.scalar import Scalar, Var, ceildiv, smin

LEAST = 16
"""Tokens that a tile is made of."""


class TokenTiles(ABC):
    """The loops over tiles of at most ``most`` tokens, their tokens, and runs of ``run`` columns, which a kernel of
    [tokens, hidden] fills: ``begin`` a tile, ``columns`` of a token, ``end`` a tile.

    ``index`` holds the positions, ``factor32`` the weights of a tile's slots in f32 (None without weights).
    """

    def __init__(
        self,
        k: KernelBuilder,
        tokens: Scalar,
        hidden: int,
        top_k: int,
        most: int,
        positions: GmTensor,
        weights: GmTensor | None,
    ):
        self.k, self.tokens, self.hidden, self.top_k, self.most = k, tokens, hidden, top_k, most
        self.positions, self.weights = positions, weights
        self.run = hidden
        slots = most * top_k
        self.index = k.ub("index", "i32", slots, 2)
        self.factor: Buffer | None = None if weights is None else k.ub("factor", weights.dtype, slots, 2)
        narrow = weights is not None and weights.dtype != "f32"
        self.factor32 = k.ub("factor32", "f32", slots, 2) if narrow else self.factor

    @abstractmethod
    def begin(self, count: Scalar) -> None:
        """Before the tokens of a tile of ``count``."""

    @abstractmethod
    def columns(self, ping: Var, first: Scalar, n: Scalar, c: Scalar, columns: Scalar) -> None:
        """Columns ``c``.. of token ``first + n``, the ``n``-th of its tile."""

    @abstractmethod
    def end(self, ping: Var, first: Scalar, count: Scalar) -> None:
        """After the tokens of a tile."""

    def emit(self) -> None:
        """The whole kernel."""
        k, top_k = self.k, self.top_k
        size = k.let("tile_tokens", balanced(ceildiv(self.tokens, k.cores), self.most, LEAST))
        with k.loop("t", k.core, ceildiv(self.tokens, size), k.cores) as t:
            ping = k.slot(2, "ping")
            first = k.let("first", t * size)
            count = k.let("count", smin(size, self.tokens - first))
            k.load(self.index[ping], self.positions[first * top_k], count * top_k)
            if self.weights is not None and self.factor is not None:
                k.load(self.factor[ping], self.weights[first * top_k], count * top_k)
                if self.factor32 is not None and self.factor32 is not self.factor:
                    k.cast(self.factor32[ping], self.factor[ping], count * top_k)
            self.begin(count)
            with k.loop("n", 0, count) as n:
                self._token(ping, first, n)
            self.end(ping, first, count)

    def _token(self, ping: Var, first: Scalar, n: Scalar) -> None:
        if self.run == self.hidden:
            self.columns(ping, first, n, 0, self.run)
            return
        with self.k.loop("c", 0, self.hidden, self.run) as c:
            self.columns(ping, first, n, c, self.k.let("columns", smin(self.run, self.hidden - c)))
