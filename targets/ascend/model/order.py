"""The order in which the cores touch device memory, copy by copy.

A kernel's statements are reduced to those that decide which copies touch device memory and where; those are run for all
cores and all iterations of a loop at once (moec.targets.ascend.model.expand). A copy is known by its ``Block``: two
copies of one block read the same bytes, two different ones are taken to be disjoint. What the order means for the L2 is
worked out in moec.targets.ascend.model.locality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moec.codegen.instructions import INSTRUCTIONS, InstrSpec, Resolved
from moec.codegen.kernel_ir import ITEMSIZE, GmRef, Instr, Kernel, Stmt
from moec.codegen.scalar import Expr, Scalar, binary
from moec.targets.ascend.model.cores import Seat
from moec.targets.ascend.model.expand import Expansion, Ints
from moec.targets.ascend.model.program import COUNTED, numbers_in, walk

START = 400
"""Copies of each core whose order is kept in full."""
MOST = 600_000
"""Copies of all cores together that are looked at; of longer kernels the beginning stands for the whole."""
MIX, MODULUS = 0x9E3779B97F4A7C15 % ((1 << 61) - 1), (1 << 61) - 1
"""Multiplier and prime of the hash that picks the sampled blocks."""


@dataclass(frozen=True, slots=True)
class Block:
    """What one copy touches: its tensor, whether it writes, and how many bytes."""

    tensor: str
    writes: bool
    bytes: int


@dataclass(frozen=True)
class Copies:
    """``start``: the first copies of each core, as (place in the core's order, block). ``sample``: copies of one in
    ``share`` blocks, of all cores, in turn: first the first copies of every core, then the second, and so on. Blocks
    are numbers, an index of ``blocks``."""

    start: tuple[Ints, Ints]
    sample: Ints
    share: int
    blocks: Sequence[Block]


def copies_of(
    kernel: Kernel, args: Mapping[str, int], seats: Sequence[Seat], blocks: int, tables: Mapping[str, Sequence[int]],
    share: int,
) -> Copies:  # fmt: skip
    """The order of the copies of ``seats``, ``blocks`` being launched; ``share`` 0 looks at the start alone."""
    limit = MOST // len(seats) if share else START
    found: list[Ints] = []  # rows: core, place, instruction, byte, run-time parameters
    copies: list[_Copy] = []
    for kind in dict.fromkeys(s.kind for s in seats):
        body = numbers_in(kernel, args, blocks, kind)
        copies = _copies(kernel, body)  # both kinds number their instructions alike
        width = max((len(c.scalars) for c in copies), default=1)
        of = [i for i, s in enumerate(seats) if s.kind == kind]
        facts = {which: np.array([seats[i].facts[which] for i in of]) for which in seats[of[0]].facts}
        expansion = Expansion(body, {c.stmt: c.scalars for c in copies}, facts, tables, limit)
        for number, core, place, values in expansion.found():
            table = np.zeros((3 + width, len(core)), np.int64)
            table[0], table[1], table[2] = np.array(of)[core], place, number
            for row, value in enumerate(values):
                table[3 + row] = value
            found.append(table)
    every = np.concatenate(found, axis=1) if found else np.zeros((4, 0), np.int64)
    first = every if not share else every[:, every[1] < START]
    some = every[:, (_hash(every[3] + every[2]) % share == 0) if share else slice(0)]
    some = some[:, np.argsort(some[1] * len(seats) + some[0], kind="stable")]
    ids, described = _blocks(np.concatenate((first, some), axis=1), copies)
    return Copies((first[1], ids[: first.shape[1]]), ids[first.shape[1] :], share, described)


def _hash(x: Ints) -> NDArray[np.uint64]:
    """``x`` times MIX modulo MODULUS, of 64-bit halves."""
    low, high = np.uint64((1 << 31) - 1), np.uint64(31)
    a, b = x.astype(np.uint64), np.uint64(MIX)
    au, ad, bu, bd = a >> high, a & low, b >> high, b & low
    mid = ad * bu + au * bd
    whole = au * bu * np.uint64(2) + (mid >> np.uint64(30)) + ((mid & np.uint64((1 << 30) - 1)) << high) + ad * bd
    folded = (whole >> np.uint64(61)) + (whole & np.uint64(MODULUS))
    return np.where(folded >= np.uint64(MODULUS), folded - np.uint64(MODULUS), folded)


@dataclass(frozen=True)
class _Copy:
    """An instruction that touches device memory. ``scalars``: its first byte, then its run-time parameters, which
    ``open`` names."""

    stmt: Instr
    spec: InstrSpec
    dtypes: Mapping[str, str]
    path: str
    tensor: str
    fixed: Mapping[str, Any]
    open: tuple[str, ...]
    scalars: tuple[Scalar, ...]
    writes: bool

    def block(self, numbers: Sequence[int]) -> Block:
        """What it touches with these run-time parameters."""
        params = {**self.fixed, **dict(zip(self.open, numbers, strict=False))}
        work = self.spec.work(Resolved(self.spec.name, self.dtypes, params), self.path)
        return Block(self.tensor, self.writes, work.bytes)


def _copies(kernel: Kernel, body: Sequence[Stmt]) -> list[_Copy]:
    spaces = {b.name: b.space for b in kernel.buffers}
    found = [_copy(s, spaces) for s in dict.fromkeys(s for s in walk(body) if isinstance(s, Instr))]
    return [c for c in found if c is not None]


def _copy(stmt: Instr, spaces: Mapping[str, str]) -> _Copy | None:
    spec = INSTRUCTIONS[stmt.op]
    pairs = list(zip(spec.operands, stmt.operands, strict=True))
    gm = [(o, r) for o, r in pairs if isinstance(r, GmRef)]
    if not gm or isinstance(spec.pipe, str):
        return None
    where = {o.name: "GM" if isinstance(r, GmRef) else spaces[r.buffer] for o, r in pairs}
    kinds = {p.name: p.kind for p in spec.params}
    run_time = [(k, v) for k, v in stmt.params if isinstance(v, Expr) and kinds[k] in COUNTED]
    fixed = {k: 0 if isinstance(v, Expr) else v for k, v in stmt.params}
    dtypes = {o.name: r.dtype for o, r in pairs}
    first = binary("*", gm[0][1].offset, ITEMSIZE[gm[0][1].dtype])
    return _Copy(
        stmt, spec, dtypes, spec.path_of(where), gm[0][1].tensor, fixed, tuple(k for k, _ in run_time),
        (first, *(v for _, v in run_time)), "w" in gm[0][0].role,
    )  # fmt: skip


def _blocks(rows: Ints, copies: Sequence[_Copy]) -> tuple[Ints, list[Block]]:
    """A number for each copy, equal where instruction, byte and parameters are, and what each number touches."""
    codes = np.zeros(rows.shape[1], np.int64)
    for row in (rows[2], *rows[4:]):
        if not row.size or (row == row[0]).all():
            continue
        values, inverse = _numbered(row)
        codes = _numbered(codes * len(values) + inverse)[1]
    kinds, at = np.unique(codes, return_index=True)
    blocks = [copies[rows[2, i]].block([int(n) for n in rows[4:, i]]) for i in at]
    _, one, ids = np.unique(rows[3] * max(1, len(kinds)) + codes, return_index=True, return_inverse=True)
    return ids, [blocks[codes[i]] for i in one]


def _numbered(row: Ints) -> tuple[Ints, Ints]:
    """The different values of ``row`` in order, and which of them each is."""
    low, high = int(row.min()), int(row.max())
    if high - low >= 4 * len(row):
        values, inverse = np.unique(row, return_inverse=True)
        return values, inverse
    there = np.zeros(high - low + 1, bool)
    there[row - low] = True
    return np.flatnonzero(there) + low, (np.cumsum(there) - 1)[row - low]
