"""What the kernels of attention's gradients read, in L1: queries with dy, keys with values, and their two products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import Buffer, GmTensor
from moec.codegen.kernels.attention import declare_args, mask_tensor
from moec.codegen.kernels.attention_cube import L0, Matrix, load, multiply, pad_to, write_out
from moec.codegen.kernels.attention_packed import Packed, packed_tensors
from moec.codegen.kernels.attention_pairs import Pair
from moec.codegen.kernels.attention_tile import Attention, Tile
from moec.codegen.scalar import Scalar, align

Part = tuple[GmTensor, Scalar, int, int]
"""What a panel holds: tensor, first row, row length, and column in the panel."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What forward had and left, and the gradient of its output."""

    q: GmTensor
    k: GmTensor
    v: GmTensor | None
    dy: GmTensor
    softmax_max: GmTensor
    softmax_sum: GmTensor
    delta: GmTensor | None
    q_rope: GmTensor | None
    k_rope: GmTensor | None
    mask: GmTensor | None
    packed: Packed | None


def declare_inputs(k: KernelBuilder, a: Attention, dprobs: bool = True) -> Inputs:
    """The run-time sizes and the parameters of ``Inputs``; v and delta only for what needs the gradient of scores."""
    declare_args(k, a)
    heads, kv, d = (a.batch, a.heads, a.queries), (a.batch, a.kv_heads, a.keys), a.dtype
    q, key = k.gm("q", d, (*heads, a.width), "in"), k.gm("k", d, (*kv, a.width), "in")
    v = k.gm("v", d, (*kv, a.values), "in") if dprobs else None
    dy = k.gm("dy", d, (*heads, a.values), "in")
    row_max, row_sum = k.gm("softmaxMax", "f32", heads, "in"), k.gm("softmaxSum", "f32", heads, "in")
    delta = k.gm("delta", "f32", heads, "in") if dprobs else None
    q_rope = k_rope = None
    if a.rope:
        q_rope = k.gm("qRope", d, (*heads, a.rope), "in")
        k_rope = k.gm("kRope", d, (a.batch, a.rope_heads, a.keys, a.rope), "in")
    return Inputs(q, key, v, dy, row_max, row_sum, delta, q_rope, k_rope, mask_tensor(k, a), packed_tensors(k, a))


@dataclass(slots=True)
class Panel:
    """One operand in L1, ``wide`` columns, as the cube reads it along rows (``plain``) and across them (``turned``);
    16-bit operands lie the same way for both."""

    plain: Buffer | None
    turned: Buffer | None
    wide: int

    def rows(self, slot: Scalar, rows: Scalar, cols: Scalar, column: int = 0) -> Matrix:
        assert self.plain is not None
        pad = align(rows, 16)
        return Matrix(self.plain[slot][column * pad], rows, cols, pad)

    def across(self, slot: Scalar, rows: Scalar, cols: Scalar, column: int = 0) -> Matrix:
        if self.turned is None:
            return self.rows(slot, rows, cols, column)
        return Matrix(self.turned[slot][column * 16], rows, cols, align(rows, 16), True, self.wide)

    def load(self, k: KernelBuilder, slot: Scalar, rows: Scalar, parts: Sequence[Part]) -> None:
        for tensor, first, width, column in parts:
            if self.plain is not None:
                load(k, self.rows(slot, rows, width, column), tensor[first * width], width)
            if self.turned is not None:
                load(k, self.across(slot, rows, width, column), tensor[first * width], width)


def panel(
    k: KernelBuilder, name: str, dtype: str, rows: int, cols: int, slots: int, along: bool, across: bool
) -> Panel:
    """Room for ``rows`` x ``cols``, read ``along`` rows, ``across`` them, or both."""
    wide = pad_to(cols, 16)
    f32 = dtype == "f32"
    plain = k.buffer("L1", name, dtype, rows * wide, slots) if along or not f32 else None
    turned = k.buffer("L1", f"{name}T", dtype, rows * wide, slots) if across and f32 else None
    return Panel(plain, turned, wide)


class Operands:
    """Queries, dy, keys and values of a pair of tiles, and the pair's scores and dy v^T."""

    def __init__(
        self, k: KernelBuilder, a: Attention, t: Tile, x: Inputs, slots: tuple[int, int], across: tuple[bool, ...]
    ):
        """``slots``: how many tiles of queries and of keys lie in L1; ``across``: whether q, dy and k are read across
        their rows too."""
        self.k, self.a, self.t, self.x = k, a, t, x
        d = a.dtype
        self.q = panel(k, "q1", d, t.rows, a.inner, slots[0], True, across[0])
        self.dy = panel(k, "dy1", d, t.rows, a.values, slots[0], x.v is not None, across[1])
        self.key = panel(k, "k1", d, t.keys, a.inner, slots[1], True, across[2])
        self.v = None if x.v is None else panel(k, "v1", d, t.keys, a.values, slots[1], True, False)
        self.s0 = k.buffer("L0C", "s0", "f32", t.rows * t.keys)
        self.dp0 = None if x.v is None else k.buffer("L0C", "dp0", "f32", t.rows * t.keys)

    def load_queries(self, p: Pair, slot: Scalar) -> None:
        k, a, x = self.k, self.a, self.x
        first = k.let("queryRow", (p.batch * a.heads + p.head) * a.queries + p.row)
        parts: list[Part] = [(x.q, first, a.width, 0)]
        if x.q_rope is not None:
            parts.append((x.q_rope, first, a.rope, a.rope_at))
        self.q.load(k, slot, p.rows, parts)
        self.dy.load(k, slot, p.rows, [(x.dy, first, a.values, 0)])

    def load_keys(self, p: Pair, slot: Scalar) -> None:
        k, a, x = self.k, self.a, self.x
        first = k.let("keyRow", (p.batch * a.kv_heads + p.kv_head) * a.keys + p.key)
        parts: list[Part] = [(x.k, first, a.width, 0)]
        if x.k_rope is not None:
            rope = first if a.rope_heads == a.kv_heads else p.batch * a.keys + p.key
            parts.append((x.k_rope, rope, a.rope, a.rope_at))
        self.key.load(k, slot, p.keys, parts)
        if self.v is not None and x.v is not None:
            self.v.load(k, slot, p.keys, [(x.v, first, a.values, 0)])

    def products(self, l0: L0, p: Pair, slots: tuple[Scalar, Scalar], scores: GmTensor,
                 dprobs: GmTensor | None, at: Scalar) -> None:  # fmt: skip
        """Scores, and dy v^T if asked for, of a pair whose queries and keys lie in ``slots``, into the workspace."""
        k, a, t = self.k, self.a, self.t
        for column, width in a.parts:
            q, key = self.q.rows(slots[0], p.rows, width, column), self.key.rows(slots[1], p.keys, width, column)
            multiply(k, l0, self.s0[0], q, key, width, fresh=int(column == 0))
        write_out(k, scores[at], self.s0[0], p.rows, p.keys, q.pad, t.keys)
        if self.v is None or self.dp0 is None or dprobs is None:
            return
        dy, v = self.dy.rows(slots[0], p.rows, a.values), self.v.rows(slots[1], p.keys, a.values)
        multiply(k, l0, self.dp0[0], dy, v, a.values)
        write_out(k, dprobs[at], self.dp0[0], p.rows, p.keys, q.pad, t.keys)
