"""The order in which the cores touch device memory, copy by copy.

A kernel's statements are reduced to those that decide which copies touch device memory and where; what is left is run
for every core as Python source made from the statements. A copy is known by its ``Block``: two copies of one block read
the same bytes, two different ones are taken to be disjoint. What the order means for the L2 is worked out in
moec.targets.ascend.model.locality.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moec.codegen.instructions import INSTRUCTIONS, InstrSpec, Resolved
from moec.codegen.kernel_ir import ITEMSIZE, Assign, For, GmRef, If, Instr, Kernel, Let, LoadScalar, Stmt
from moec.codegen.scalar import Expr, Scalar, Var, binary
from moec.targets.ascend.model.cores import Seat
from moec.targets.ascend.model.program import COUNTED, numbers_in, walk
from moec.targets.ascend.model.terms import CORE_NAMES, Slots, divide, load_of, substitute, variables

Copy = tuple[int, ...]
"""Number of the instruction, first byte in its tensor, run-time parameters."""
START = 400
"""Copies of each core whose order is kept in full."""
MOST = 600_000
"""Copies of all cores together that are looked at; of longer kernels the beginning stands for the whole."""
MIX, MODULUS = 0x9E3779B97F4A7C15, (1 << 61) - 1
"""Multiplier and prime of the hash that picks the sampled blocks."""


@dataclass(frozen=True, slots=True)
class Block:
    """What one copy touches: its tensor, whether it writes, and how many bytes."""

    tensor: str
    writes: bool
    bytes: int


@dataclass(frozen=True)
class Copies:
    """``start``: the first copies of each core. ``sample``: copies of one in ``share`` blocks, of all cores, in turn:
    first the first copies of every core, then the second, and so on. ``describe`` says what a copy is."""

    start: Sequence[Sequence[Copy]]
    sample: Sequence[Copy]
    share: int
    describe: Callable[[Copy], Block]


class _Full(Exception):
    """A core has as many copies as are looked at."""


class _Locals(Slots):
    """Variables as local names of a function."""

    def code(self, s: Scalar) -> str:
        return f"v{self.index[s.name]}" if isinstance(s, Var) else super().code(s)


def copies_of(
    kernel: Kernel,
    args: Mapping[str, int],
    seats: Sequence[Seat],
    blocks: int,
    read: Callable[[str, int], int | float],
    share: int,
) -> Copies:
    """The order of the copies of ``seats``, ``blocks`` being launched; ``share`` 0 looks at the start alone."""
    kinds = dict.fromkeys(s.kind for s in seats)
    sources = {kind: _Source(kernel, numbers_in(kernel, args, blocks, kind), read) for kind in kinds}
    runs = {kind: source.function() for kind, source in sources.items()}
    start: list[list[Copy]] = []
    sample: list[tuple[int, int, Copy]] = []
    for number, seat in enumerate(seats):
        looker = _Looker(number, share, sample, MOST // len(seats) if share else START)
        with contextlib.suppress(_Full):
            runs[seat.kind](looker.add, *(seat.facts[which] for which in CORE_NAMES))
        start.append(looker.start)
    sample.sort(key=lambda entry: entry[:2])
    source = next(iter(sources.values()))  # both kinds number their instructions alike
    return Copies(start, [copy for _, _, copy in sample], share, source.describe)


class _Looker:
    """Takes the copies of one core as they come."""

    def __init__(self, core: int, share: int, sample: list[tuple[int, int, Copy]], limit: int):
        self.core, self.share, self.sample, self.limit = core, share, sample, limit
        self.start: list[Copy] = []
        self.count = 0

    def add(self, copy: Copy) -> None:
        """One more copy; raises _Full where no more are wanted."""
        if self.count < START:
            self.start.append(copy)
        self.count += 1
        if self.count > self.limit:
            raise _Full
        if self.share and (copy[1] + copy[0]) * MIX % MODULUS % self.share == 0:
            self.sample.append((self.count, self.core, copy))


@dataclass(frozen=True)
class _Copy:
    spec: InstrSpec
    dtypes: Mapping[str, str]
    path: str
    ref: GmRef
    fixed: Mapping[str, Any]
    open: tuple[tuple[str, Scalar], ...]
    writes: bool


class _Source:
    """Python source of a kernel's copies."""

    def __init__(self, kernel: Kernel, body: tuple[Stmt, ...], read: Callable[[str, int], int | float]):
        self.body, self.read = body, read
        self.spaces = {b.name: b.space for b in kernel.buffers}
        index = {name: i for i, name in enumerate(CORE_NAMES.values())}
        for stmt in walk(body):
            name = stmt.var if isinstance(stmt, For) else stmt.var.name if isinstance(stmt, (Let, LoadScalar)) else ""
            if name:
                index.setdefault(name, len(index))
        self.slots = _Locals(index, read)
        self.copies: list[_Copy] = []
        self.number: dict[Instr, int] = {}
        for stmt in walk(body):
            if isinstance(stmt, Instr) and stmt not in self.number and (copy := self._copy(stmt)) is not None:
                self.number[stmt] = len(self.copies)
                self.copies.append(copy)
        self.needed = self._needed()
        self.known: dict[tuple[int, ...], Block] = {}

    def _copy(self, stmt: Instr) -> _Copy | None:
        spec = INSTRUCTIONS[stmt.op]
        pairs = list(zip(spec.operands, stmt.operands, strict=True))
        gm = [(o, r) for o, r in pairs if isinstance(r, GmRef)]
        if not gm or isinstance(spec.pipe, str):
            return None
        spaces = {o.name: "GM" if isinstance(r, GmRef) else self.spaces[r.buffer] for o, r in pairs}
        kinds = {p.name: p.kind for p in spec.params}
        run_time = tuple((k, v) for k, v in stmt.params if isinstance(v, Expr) and kinds[k] in COUNTED)
        fixed = {k: 0 if isinstance(v, Expr) else v for k, v in stmt.params}
        dtypes = {o.name: r.dtype for o, r in pairs}
        return _Copy(spec, dtypes, spec.path_of(spaces), gm[0][1], fixed, run_time, "w" in gm[0][0].role)

    def _needed(self) -> set[str]:
        """Variables that decide where copies go and how often they are made."""
        needed: set[str] = set()
        before = -1
        while before != len(needed):
            before = len(needed)
            self._reach(self.body, needed)
        return needed

    def _reach(self, stmts: Sequence[Stmt], needed: set[str]) -> bool:
        kept = False
        for stmt in stmts:
            if isinstance(stmt, (For, If)):
                blocks = (stmt.body,) if isinstance(stmt, For) else (stmt.then, stmt.orelse)
                inside = [self._reach(block, needed) for block in blocks]  # every block, even if the first is kept
                if any(inside):
                    kept = True
                    for part in (stmt.start, stmt.stop, stmt.step) if isinstance(stmt, For) else (stmt.cond,):
                        needed |= variables(part)
            elif isinstance(stmt, (Let, Assign, LoadScalar)) and stmt.var.name in needed:
                kept = True
                needed |= variables(load_of(stmt.ref) if isinstance(stmt, LoadScalar) else stmt.value)
            elif isinstance(stmt, Instr) and stmt in self.number:
                kept = True
                copy = self.copies[self.number[stmt]]
                needed |= variables(copy.ref.offset).union(*(variables(v) for _, v in copy.open))
        return kept

    def function(self) -> Callable[..., None]:
        """``run(add, idx, sub)`` calls ``add`` with each copy; the source is made from trees, never from user text."""
        arguments = ", ".join(f"v{self.slots.index[name]}" for name in CORE_NAMES.values())
        lines = [f"def run(add, {arguments}):", *self._lines(self.body, 1)]
        scope: dict[str, Any] = {"read": self.read, "divide": divide}
        exec("\n".join(lines), scope)
        run: Callable[..., None] = scope["run"]
        return run

    def _lines(self, stmts: Sequence[Stmt], depth: int) -> list[str]:
        pad = " " * depth
        code = self.slots.code
        out: list[str] = []
        for stmt in stmts:
            if isinstance(stmt, (Let, Assign, LoadScalar)):
                if stmt.var.name in self.needed:
                    value = load_of(stmt.ref) if isinstance(stmt, LoadScalar) else stmt.value
                    out.append(f"{pad}{code(stmt.var)} = {code(value)}")
            elif isinstance(stmt, For):
                body = self._lines(stmt.body, depth + 1)
                if body:
                    bounds = ", ".join(code(part) for part in (stmt.start, stmt.stop, stmt.step))
                    out += [f"{pad}for v{self.slots.index[stmt.var]} in range({bounds}):", *body]
            elif isinstance(stmt, If):
                then, orelse = self._lines(stmt.then, depth + 1), self._lines(stmt.orelse, depth + 1)
                if then or orelse:
                    out += [f"{pad}if {code(stmt.cond)}:", *(then or [f"{pad} pass"])]
                    out += [f"{pad}else:", *orelse] if orelse else []
            elif isinstance(stmt, Instr) and stmt in self.number:
                number = self.number[stmt]
                copy = self.copies[number]
                first = binary("*", copy.ref.offset, ITEMSIZE[copy.ref.dtype])
                numbers = ", ".join(code(substitute(v, {})) for v in (first, *(v for _, v in copy.open)))
                out.append(f"{pad}add(({number}, {numbers}))")
        return out or ([" pass"] if depth == 1 else [])

    def describe(self, item: tuple[int, ...]) -> Block:
        """What a copy of a stream touches."""
        key = (item[0], *item[2:])
        found = self.known.get(key)
        if found is None:
            copy = self.copies[item[0]]
            params = {**copy.fixed, **dict(zip((k for k, _ in copy.open), item[2:], strict=True))}
            work = copy.spec.work(Resolved(copy.spec.name, copy.dtypes, params), copy.path)
            found = self.known[key] = Block(copy.ref.tensor, copy.writes, work.bytes)
        return found
