"""What an attention kernel computes, and tile sizes that fit the on-chip memories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE
from moec.codegen.kernels.attention_cube import c0_of, pad_to
from moec.codegen.scalar import Scalar
from moec.diagnostics import Problem, Refusal, Where

ROWS, KEYS = (128, 64, 32, 16), (128, 64)
"""Query rows and keys of a tile: what is tried, largest first."""
DEPTH = 64
"""Most of the inner dimension that L0 takes at a time in the forward pass."""
BITS_ROW = 256
"""Elements that one comparison covers whose bits fill a 32-byte block."""


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask that broadcasts to [B, N, S, T]: which of the dimensions it has, and whether it is boolean (u8, not 0
    attends) or added."""

    dtype: str
    batch: bool
    heads: bool
    rows: bool
    keys: bool

    @property
    def is_bool(self) -> bool:
        return self.dtype == "u8"


@dataclass(frozen=True, slots=True)
class Attention:
    """Sizes are numbers or run-time arguments (as Arg); ``window`` and ``softcap`` None where there is none.

    ``packed``: positions are several sequences, as many queries as keys.

    q [batch, heads, queries, width], k [batch, kv_heads, keys, width], v [batch, kv_heads, keys, values]; ``rope``
    columns of the rotary part (0: none), whose keys have ``rope_heads`` heads.
    """

    batch: Scalar
    queries: Scalar
    keys: Scalar
    heads: int
    kv_heads: int
    width: int
    values: int
    dtype: str
    scale: float
    causal: bool = False
    offset: Scalar = 0
    window: int | None = None
    softcap: float | None = None
    mask: Mask | None = None
    sinks: str = ""
    rope: int = 0
    rope_heads: int = 0
    zero_empty: bool = True
    stats: bool = False
    backward: bool = False
    packed: bool = False

    @property
    def inner(self) -> int:
        """Columns of queries and keys in L1: both parts, the first filled up to ``rope_at``."""
        return self.rope_at + self.rope

    @property
    def rope_at(self) -> int:
        """Column of the rotary part: it starts a block of 32 bytes, and of 16 columns where L0C has a result in the
        same columns."""
        return pad_to(self.width, 16 if self.backward else c0_of(self.dtype)) if self.rope else self.width

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """First column and columns of what products take at once: all, or each part by itself where columns between
        them are left unset, as loads fill up to 32 bytes only."""
        if self.rope_at == pad_to(self.width, c0_of(self.dtype)) or not self.rope:
            return ((0, self.inner),)
        return (0, self.width), (self.rope_at, self.rope)

    @property
    def out_pitch(self) -> int:
        """Columns of an output row on chip."""
        return pad_to(self.values, c0_of(self.dtype))


@dataclass(frozen=True, slots=True)
class Tile:
    """``rows`` queries (half of them on each vector core) by ``keys``; ``depth`` of the inner dimension in L0;
    ``score_slots`` tiles of scores in UB."""

    rows: int
    keys: int
    depth: int
    score_slots: int

    @property
    def half(self) -> int:
        return self.rows // 2


def forward_ub(t: Tile, a: Attention) -> int:
    """Bytes of UB that the forward kernel takes."""
    size = ITEMSIZE[a.dtype]
    each = t.half * t.keys
    total = t.score_slots * each * 4 + (each * size if size == 2 else 0)
    total += 2 * t.half * a.out_pitch * 4 + t.half * 64 * 4 + t.half * 4 * 16 + each // 8 + 4096
    if a.mask is not None:
        total += _mask_bytes(t, a.mask)
    return total + _packed_bytes(t, a)


def _packed_bytes(t: Tile, a: Attention) -> int:
    return t.half * (t.keys * 4 + 48) if a.packed else 0


def _mask_bytes(t: Tile, mask: Mask) -> int:
    each = t.half * t.keys
    if not mask.keys:
        return t.half * 32 + 1024
    if mask.is_bool:
        return each * 3
    return each * 4 + (each * 2 if ITEMSIZE[mask.dtype] == 2 else 0)


def _fits(t: Tile, a: Attention, caps: Capacities) -> bool:
    size = ITEMSIZE[a.dtype]
    wide = pad_to(a.values, 16)
    l1 = t.rows * pad_to(a.inner, 16) + 2 * t.keys * (pad_to(a.inner, 16) + wide + t.rows)
    l0b = max(t.keys, wide) * t.depth
    return (
        l1 * size <= caps.l1
        and 2 * t.rows * t.depth * size <= caps.l0a
        and 2 * l0b * size <= caps.l0b
        and t.rows * (t.keys + wide) * 4 <= caps.l0c
        and max(t.keys, wide) // 16 * (t.depth // c0_of(a.dtype)) <= 255
        and forward_ub(t, a) <= caps.ub
    )


def _candidates(queries: int, keys: int) -> Iterator[Tile]:
    for rows in ROWS:
        for wide in KEYS:
            for slots in (2, 1):
                for depth in (128, 64, 32, 16):
                    if rows <= max(16, pad_to(queries, 16)) and (wide <= pad_to(keys, 64) or wide == KEYS[-1]):
                        yield Tile(rows, wide, depth, slots)


def forward_tile(a: Attention, queries: int, keys: int, caps: Capacities, node: str = "") -> Tile:
    """The largest tile that fits, for typical numbers of ``queries`` and ``keys``; two tiles of scores before wide
    tiles, as loads then hide."""
    deepest = min(DEPTH, max(16, pad_to(a.inner, 16) // 2))  # so that L0 takes one piece while the cube has another
    fitting = [t for t in _candidates(queries, keys) if t.depth <= deepest and _fits(t, a, caps)]
    if not fitting:
        least = Tile(ROWS[-1], KEYS[-1], 16, 1)
        raise Refusal(
            Problem(
                f"no tile of attention with heads of {a.inner} and {a.values} fits: {least.rows} x {least.keys} needs "
                f"{forward_ub(least, a) / 1024:.1f} of {caps.ub / 1024:.1f} KiB of UB",
                Where(node=node),
                "use narrower heads",
            )
        )
    return max(fitting, key=lambda t: (t.rows * t.keys * (3 if t.score_slots == 2 else 2), t.rows, t.depth))


def backward_ub(t: Tile, a: Attention) -> int:
    """Bytes of UB that a backward kernel takes."""
    size = ITEMSIZE[a.dtype]
    each = t.half * t.keys
    total = 2 * t.score_slots * each * 4 + (2 * each * size if size == 2 else 0) + each * 4
    total += t.half * 4 * 28 + each // 8 + 8192 + (0 if a.softcap is None else each * 4)
    return total + (0 if a.mask is None else _mask_bytes(t, a.mask)) + _packed_bytes(t, a)


@dataclass(frozen=True, slots=True)
class Sums:
    """Which of the gradients a backward kernel sums in L0C: dq, or dv and dk, or one of these."""

    dq: bool = False
    dv: bool = False
    dk: bool = False

    @property
    def by_keys(self) -> bool:
        return not self.dq

    @property
    def dprobs(self) -> bool:
        """Whether it needs dy v^T."""
        return self.dq or self.dk

    @property
    def name(self) -> str:
        return "dq" if self.dq else "dkv" if self.dv and self.dk else "dv" if self.dv else "dk"


DQ, DKV, DV, DK = Sums(dq=True), Sums(dv=True, dk=True), Sums(dv=True), Sums(dk=True)


def _l1_elements(t: Tile, a: Attention, of: Sums) -> int:
    """Elements in L1; f32 lies there once for each way it is read, along rows and across them."""
    twice = 2 if ITEMSIZE[a.dtype] == 4 else 1
    inner, wide = pad_to(a.inner, 16), pad_to(a.values, 16)
    pairs = 2 * t.rows * t.keys * (of.dv + of.dk + of.dq)
    if of.dq:
        return t.rows * (inner + wide) + 2 * t.keys * (twice * inner + wide) + pairs
    if not of.dk:
        return t.keys * inner + 2 * t.rows * (inner + wide) + pairs
    return t.keys * (inner + wide) + 2 * t.rows * (twice * inner + (twice if of.dv else 1) * wide) + pairs


def _backward_fits(t: Tile, a: Attention, caps: Capacities, of: Sums) -> bool:
    size, c0 = ITEMSIZE[a.dtype], c0_of(a.dtype)
    inner, wide = pad_to(a.inner, 16), pad_to(a.values, 16)
    sums = t.rows * inner * of.dq + t.keys * (inner * of.dk + wide * of.dv)
    widest = max(t.keys, t.rows, inner, wide)
    return (
        _l1_elements(t, a, of) * size <= caps.l1
        and 2 * max(t.rows, t.keys) * t.depth * size <= caps.l0a
        and 2 * widest * t.depth * size <= caps.l0b
        and (sums + (2 if of.dprobs else 1) * t.rows * t.keys) * 4 <= caps.l0c
        and widest // 16 * (t.depth // c0) <= 255
        and backward_ub(t, a) <= caps.ub
    )


def backward_tiles(a: Attention, queries: int, keys: int, caps: Capacities, node: str = "") -> dict[Sums, Tile]:
    """The kernels that make dq, dk and dv, each with the largest tile that fits: dk and dv at once where L0C holds the
    sums of both."""
    chosen = {of: _backward_tile(a, queries, keys, caps, of) for of in (DKV, DQ)}
    if chosen[DKV] is None:
        del chosen[DKV]
        chosen = {of: _backward_tile(a, queries, keys, caps, of) for of in (DV, DK)} | chosen
    tiles = {of: t for of, t in chosen.items() if t is not None}
    if len(tiles) < len(chosen):
        least = KEYS[-1] * max(pad_to(a.inner, 16), pad_to(a.values, 16)) * 4
        raise Refusal(
            Problem(
                f"no tile of attention's gradient with heads of {a.inner} and {a.values} fits: the sums of "
                f"{KEYS[-1]} keys need {least / 1024:.1f} of {caps.l0c / 1024:.1f} KiB of L0C, and scores beside them",
                Where(node=node),
                "use narrower heads",
            )
        )

    return tiles


def _backward_tile(a: Attention, queries: int, keys: int, caps: Capacities, of: Sums) -> Tile | None:
    """The largest tile that fits, None where none does.

    L0 takes what the sums run over in one piece where it can, which leaves more events for the other products.
    """

    def worth(t: Tile) -> tuple[int, int, bool, int]:
        whole = t.depth >= (t.rows if of.by_keys else t.keys)
        return t.rows * t.keys * (3 if t.score_slots == 2 else 2), t.rows, whole, -t.depth if whole else t.depth

    fitting = [t for t in _candidates(queries, keys) if _backward_fits(t, a, caps, of)]
    return max(fitting, key=worth, default=None)


def mask_grad_tile(a: Attention, queries: int, keys: int, caps: Capacities, node: str = "") -> Tile:
    """The largest tile that fits the kernel of the mask's gradient: two of each operand, and sums in UB."""
    size, widths = ITEMSIZE[a.dtype], pad_to(a.inner, 16) + pad_to(a.values, 16)

    def fits(t: Tile) -> bool:
        widest = max(t.rows, t.keys)
        return (
            2 * (t.rows + t.keys) * widths * size <= caps.l1
            and 2 * widest * t.depth * size <= min(caps.l0a, caps.l0b)
            and 2 * t.rows * t.keys * 4 <= caps.l0c
            and widest // 16 * (t.depth // c0_of(a.dtype)) <= 255
            and backward_ub(t, a) + t.half * t.keys * 6 <= caps.ub
        )

    fitting = [t for t in _candidates(queries, keys) if fits(t)]
    if not fitting:
        least = 2 * (ROWS[-1] + KEYS[-1]) * widths * size
        raise Refusal(
            Problem(
                f"no tile of the gradient of attention's mask with heads of {a.inner} and {a.values} fits: "
                f"{ROWS[-1]} x {KEYS[-1]} needs {least / 1024:.1f} of {caps.l1 / 1024:.1f} KiB of L1",
                Where(node=node),
                "use narrower heads",
            )
        )
    return max(fitting, key=lambda t: (t.rows * t.keys * (3 if t.score_slots == 2 else 2), t.rows, t.depth))
