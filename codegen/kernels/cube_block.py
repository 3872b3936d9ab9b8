"""How a core goes through its part of a product's output: the order of blocks, and the tiles of a block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import GmTensor
from moec.codegen.kernels.cube import Memories, OutputTile, emit_product, load_kept
from moec.codegen.scalar import Scalar, Var, ceildiv, smin
from moec.codegen.tile import CubeTile

Output = Callable[[Scalar, Scalar, Var, Var], OutputTile]
"""The output tile at a row and a column, of so many rows and columns."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """An output of ``m`` x ``n``: ``down`` by ``wide`` blocks, ``each`` in all."""

    m: Scalar
    n: Scalar
    down: Var
    wide: Var
    each: Var


def count(t: CubeTile, m: Scalar, n: Scalar) -> Scalar:
    """How many blocks an output has."""
    block_m, block_n = t.block
    return ceildiv(m, block_m) * ceildiv(n, block_n)


def blocks(k: KernelBuilder, t: CubeTile, m: Scalar, n: Scalar) -> Blocks:
    """The blocks of an output."""
    block_m, block_n = t.block
    down, wide = k.let("mBlocks", ceildiv(m, block_m)), k.let("nBlocks", ceildiv(n, block_n))
    return Blocks(m, n, down, wide, k.let("each", down * wide))


def pass_by(k: KernelBuilder, t: CubeTile, a: GmTensor, b: GmTensor) -> None:
    """Operands that are read past the L2."""
    for name, operand in (("a", a), ("b", b)):
        if name in t.bypass:
            k.op("BypassL2", operand[0])


def emit_block(k: KernelBuilder, mem: Memories, t: CubeTile, of: Blocks, number: Scalar, output: Output) -> None:
    """Computes the ``number``-th block, tile by tile down its columns; a kept operand is loaded once."""
    block_m, block_n = t.block
    at_m, at_n = _place(k, t, number, of)
    first_m, first_n = k.let("m0", at_m * block_m), k.let("n0", at_n * block_n)

    def tile(m0: Scalar, n0: Scalar, m_end: Scalar, n_end: Scalar) -> OutputTile:
        return output(m0, n0, k.let("m", smin(t.m, m_end - m0)), k.let("n", smin(t.n, n_end - n0)))

    if t.block == (t.m, t.n):
        emit_product(k, mem, t, tile(first_m, first_n, of.m, of.n))
        return
    m_end, n_end = k.let("mEnd", smin(of.m, first_m + block_m)), k.let("nEnd", smin(of.n, first_n + block_n))
    kept = load_kept(k, mem, t, tile(first_m, first_n, m_end, n_end)) if t.keep else None
    down = k.let("down", ceildiv(m_end - first_m, t.m))
    with k.loop("u", 0, down * ceildiv(n_end - first_n, t.n)) as u:
        m1, n1 = k.let("m1", first_m + u % down * t.m), k.let("n1", first_n + u // down * t.n)
        emit_product(k, mem, t, tile(m1, n1, m_end, n_end), kept)


def _place(k: KernelBuilder, t: CubeTile, number: Scalar, of: Blocks) -> tuple[Scalar, Scalar]:
    """Which block of the output is the ``number``-th: down the columns, or down those of one panel of rows after the
    other; on the diagonal neighbours in a column share no rows of either operand."""
    if t.panel:
        area = k.let("area", of.wide * t.panel)
        top = k.let("top", number // area * t.panel)
        height = k.let("height", smin(t.panel, of.down - top))
        inside = k.let("at", number % area)
        at_m, at_n = top + inside % height, inside // height
    else:
        at_m, at_n = number % of.down, number // of.down
    return at_m, (at_n + at_m) % of.wide if t.diagonal else at_n
