"""The matmul kernel: a batch of products of either layout, with sizes known or given at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.cube import OutputTile, memories
from moec.codegen.kernels.cube_block import blocks, count, emit_block, pass_by
from moec.codegen.kernels.vector.parts import UNIT, part_length
from moec.codegen.scalar import Scalar, Var, smin
from moec.codegen.tile import CubeTile


@dataclass(frozen=True, slots=True)
class Repeat:
    """An operand that not each item of the batch has its own of: it has ``items`` (None: a run-time argument), each
    used for ``each`` items of the batch on end, and again from the first."""

    items: int | None
    each: int | None


@dataclass(frozen=True, slots=True)
class Product:
    """What a matmul kernel computes: sizes (None: a run-time argument), dtypes, how a and b are stored and repeated."""

    m: int | None
    n: int | None
    k: int | None
    batch: int | None
    dtype: str
    out: str
    b_by_k: bool = False
    hi: int = 2**31 - 1
    a_by_k: bool = False
    a_repeat: Repeat | None = None
    b_repeat: Repeat | None = None


def matmul_kernel(name: str, caps: Capacities, tile: CubeTile, p: Product, source: Sequence[str] = ()) -> Kernel:
    """a [B, M, K] (or [B, K, M]) by b [B, N, K] (or [B, K, N]) into c [B, M, N]; where K is split, into
    c [splits, B, M, N], of which parts that have nothing of K are not written."""
    k = KernelBuilder(name, "aic", caps, source)

    def size(letter: str, n: int | None) -> Scalar:
        return k.arg(letter, 0, p.hi) if n is None else n

    batch, m, n, depth = size("B", p.batch), size("M", p.m), size("N", p.n), size("K", p.k)
    a_items, a_item = _items(k, "a", p.a_repeat, batch)
    b_items, b_item = _items(k, "b", p.b_repeat, batch)
    a = k.gm("a", p.dtype, (a_items, depth, m) if p.a_by_k else (a_items, m, depth), "in")
    b = k.gm("b", p.dtype, (b_items, depth, n) if p.b_by_k else (b_items, n, depth), "in", "weight")
    c = k.gm("c", p.out, (batch * tile.splits, m, n), "out")
    mem = memories(k, tile, p.dtype)
    pass_by(k, tile, a, b)
    of = blocks(k, tile, m, n)
    items = of.each * batch
    with k.loop("t", k.core, items * tile.splits, k.cores) as turn:
        part: Scalar = 0 if tile.splits == 1 else k.let("part", turn // items)
        t: Scalar = turn if tile.splits == 1 else k.let("of_part", turn % items)
        item: Scalar = 0 if p.batch == 1 else k.let("item", t // of.each)
        inside: Scalar = t if p.batch == 1 else k.let("inside", t % of.each)
        start: Scalar = 0
        length: Scalar | None = None
        if tile.splits > 1:
            each = part_length(depth, tile.splits)
            start = k.let("start", part * each)
            length = k.let("length", smin(each, depth - start))

        def output(
            m0: Scalar,
            n0: Scalar,
            mm: Var,
            nn: Var,
            item: Scalar = item,
            part: Scalar = part,
            start: Scalar = start,
            length: Scalar | None = length,
        ) -> OutputTile:
            of_a, of_b = a_item(item), b_item(item)
            first_a = (of_a * m + m0) * depth if not p.a_by_k else of_a * depth * m + m0
            first_b = (of_b * n + n0) * depth if not p.b_by_k else of_b * depth * n + n0
            at_a = first_a + start * (m if p.a_by_k else 1)
            at_b = first_b + start * (n if p.b_by_k else 1)
            at = a[at_a], b[at_b], c[((part * batch + item) * m + m0) * n + n0]
            return OutputTile(*at, mm, nn, depth, n, p.b_by_k, m if p.a_by_k else None, depth=length)

        if length is None:
            emit_block(k, mem, tile, of, inside, output)
        else:
            with k.if_(length > 0):
                emit_block(k, mem, tile, of, inside, output)
    _matmul_witnesses(k, tile, p)
    return k.finish(count(tile, m, n) * batch * tile.splits)


def _items(
    k: KernelBuilder, operand: str, repeat: Repeat | None, batch: Scalar
) -> tuple[Scalar, Callable[[Scalar], Scalar]]:
    """How many items an operand has, and which of them belongs to an item of the batch."""
    if repeat is None:
        return batch, lambda item: item
    items: Scalar = k.arg(f"{operand}Items", 1) if repeat.items is None else repeat.items
    each: Scalar = k.arg(f"{operand}Each", 1) if repeat.each is None else repeat.each
    if items == 1:
        return 1, lambda item: 0
    return items, lambda item: (item if each == 1 else item // each) % items


def _matmul_witnesses(k: KernelBuilder, tile: CubeTile, p: Product) -> None:
    rows = (0, 1, 2, tile.m + 1, 3 * tile.m + 17, 6 * tile.m)
    free = {"B": p.batch, "M": p.m, "N": p.n, "K": p.k}
    for operand, repeat in (("a", p.a_repeat), ("b", p.b_repeat)):
        if repeat is not None:
            free |= {f"{operand}Items": repeat.items, f"{operand}Each": repeat.each}
    names = [letter for letter, n in free.items() if n is None]
    for cores in (1, 2):
        for m in rows if names else rows[:1]:
            args = {"B": 3, "M": m, "N": 2 * tile.n + 3, "K": (tile.splits - 1) * UNIT + 2 * tile.k1 + 5}
            args |= {"aItems": 3, "aEach": 1, "bItems": 3, "bEach": 1}
            k.witness(cores, None, **{name: min(args[name], p.hi) for name in names})
