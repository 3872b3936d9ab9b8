"""What one operator must do, independent of how fast a chip does it."""

from __future__ import annotations

from dataclasses import dataclass, field

UNLIMITED = float("inf")
"""Pieces of work that can be cut as finely as one likes."""


@dataclass(frozen=True)
class Gemm:
    """``batch`` products [m, k] x [k, n].

    ``a_row`` and ``b_row``: bytes of a stored row of each side, which set how well it is read (0: stored in fractals).
    ``out_itemsize``: bytes of a result element. ``a_uses``: how often a loaded element of the left side is used, where
    it is unfolded on chip. ``uneven``: ``m`` is the mean of groups of all sizes.
    """

    batch: int
    m: int
    n: int
    k: int
    dtype: str = "bf16"
    a_row: float = 0
    b_row: float = 0
    out_itemsize: float = 2
    a_uses: float = 1
    uneven: bool = False

    @property
    def flops(self) -> int:
        """2 per multiply and add."""
        return 2 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True)
class Work:
    """An operator as quantities, each summed over all cores.

    ``reads`` and ``writes``: bytes of device memory; ``cold`` of them are certain to be in HBM (optimizer state,
    main gradients), the rest may have stayed in L2. ``vector``: vector unit cycles; ``issue``: cycles in which a
    core does nothing but start copies or run scalar code. ``single``: cycles that only one core can do. ``units``:
    independent pieces, so that no more cores are used. ``operands``: tensors that each core must be set up for.
    ``fixpipe``: bytes that the cube stores beyond its products' results. ``mixed``: cube and vector cores work
    together. ``before``: what the vendor does in the same kernel ahead of it. ``scattered``: bytes that could have
    moved in the time which rows that lie apart cost. ``hot``: what is read was just made, so that L2 holds all of
    it that fits.
    """

    kind: str
    reads: int = 0
    writes: int = 0
    cold: int = 0
    vector: float = 0.0
    issue: float = 0.0
    single: float = 0.0
    units: float = UNLIMITED
    operands: int = 1
    gemms: tuple[Gemm, ...] = field(default=())
    fixpipe: float = 0.0
    mixed: bool = False
    hot: bool = False
    scattered: int = 0
    before: Work | None = None

    @property
    def cube(self) -> bool:
        """Whether cube cores take part."""
        return bool(self.gemms)

    @property
    def flops(self) -> int:
        """Of the cube."""
        return sum(g.flops for g in self.gemms)

    @property
    def moved(self) -> int:
        """Bytes in and out."""
        return self.reads + self.writes
