"""What a cube kernel chooses: the sizes of its tiles and how it goes through them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CubeTile:
    """Output tile ``m`` x ``n``; ``k1`` of K in L1, ``k0`` of K in L0; ``c_slots`` output tiles in L0C.

    Choices beyond: ``k1b`` of K of the second operand in L1 (0: ``k1``), in ``l1_slots`` buffers each; a core takes
    ``block_m`` x ``block_n`` of the output at a time (0: one tile), in ``panel`` rows of blocks before the next rows
    (0: all), along ``diagonal``s, so that cores side by side read different rows of both operands; ``stagger``: each
    core starts at another place of K; ``unit``: Mmad and Fixpipe hand over by unit flags; ``bypass``: operands (a, b)
    that are read past the L2; ``keep``: the operand (a, b) whose whole K stays in L1 while a core computes a block of
    tiles that share it; ``splits``: parts of K that cores compute on their own, to be summed in order.
    """

    m: int
    n: int
    k1: int
    k0: int
    c_slots: int
    k1b: int = 0
    l1_slots: int = 2
    block_m: int = 0
    block_n: int = 0
    panel: int = 0
    diagonal: bool = False
    stagger: bool = False
    unit: bool = False
    bypass: str = ""
    keep: str = ""
    splits: int = 1

    @property
    def depth_b(self) -> int:
        """K of the second operand in L1."""
        return self.k1b or self.k1

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of the output that a core takes at a time."""
        return self.block_m or self.m, self.block_n or self.n

    def slots(self, operand: str) -> int:
        """Buffers of an operand (a, b) in L1: one that is kept has one."""
        return 1 if self.keep == operand else self.l1_slots
