"""Which repeats of a vector instruction meet in a bank of UB (CANN asc-devkit examples, bank_conflict_ub).

An address of UB is bank (2 bits), row (7), bank group (4), byte (5): 48 banks of 128 rows of 32 bytes in 16 groups of
3. A repeat reads up to eight 32-byte blocks of each source and writes as many. Two reads conflict where they take
blocks of one group; a read and a write where they take blocks of one bank, unless the two run in step in the same
banks: then the write is put off by a repeat. A block read again within a repeat is read once."""

from __future__ import annotations

from functools import lru_cache

GROUPS = 16
"""Bank groups, 32 bytes each: addresses repeat every 512 bytes."""
BLOCKS = 8
"""Blocks of 32 bytes in a repeat."""
Strides = tuple[int, int]
"""Blocks from one block of a repeat to the next, and from one repeat to the next."""
DENSE: Strides = (1, BLOCKS)


def _taken(first: int, strides: Strides, repeat: int) -> frozenset[int]:
    """Bank groups of one operand in one repeat; ``first`` is the group of its first block."""
    block, step = strides
    return frozenset((first + repeat * step + i * block) % GROUPS for i in range(BLOCKS))


@lru_cache(maxsize=4096)
def reads_meet(distance: int, first: Strides = DENSE, second: Strides = DENSE) -> float:
    """Share of repeats in which two sources, the second ``distance`` bytes after the first, read one bank group."""
    apart = distance // 32
    return sum(bool(_taken(0, first, r) & _taken(apart, second, r)) for r in range(GROUPS)) / GROUPS


@lru_cache(maxsize=4096)
def write_meets(distance: int, source: Strides = DENSE, result: Strides = DENSE) -> float:
    """Share of repeats in which a result ``distance`` bytes after a source, in banks of the same rank, is written into
    a bank that the source is read from."""
    apart = distance // 32
    late = int(apart % GROUPS == 0 and source == result)
    return sum(bool(_taken(0, source, r + late) & _taken(apart, result, r)) for r in range(GROUPS)) / GROUPS
