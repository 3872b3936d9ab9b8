"""What cores issue, step by step, worked out by a Python function that is made of a kernel's statements: the fast form
of ``moec.codegen.interpret.trace``, for the many runs that synchronisation is judged on. A test holds the two against
each other.

An entry is a tuple: the index of its ``Leaf``, then the numbers that are not the same each time: parameters and first
bytes of an access (but of memory in which nothing can make it wait), the event id of a flag, the scalars of a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moec.codegen.instructions import INSTRUCTIONS, InstrSpec, Resolved
from moec.codegen.interpret import VECTOR_CORES, Path, first_byte, seats
from moec.codegen.kernel_ir import (
    ITEMSIZE,
    Assign,
    Barrier,
    CrossCoreSet,
    CrossCoreWait,
    For,
    GmRef,
    If,
    Instr,
    Kernel,
    Let,
    LoadScalar,
    Ref,
    SetFlag,
    Stmt,
    StoreScalar,
    SyncAll,
    WaitFlag,
    Witness,
    statements,
)
from moec.codegen.scalar import Arg, Bin, Choose, Core, Expr, Scalar, Var

Entry = tuple[Any, ...]
Marks = Mapping[tuple[Path, bool], Sequence[Scalar]]
"""Places (a statement, and whether behind it) at which scalars are to be known."""
FACTS = ("idx", "num", "sub", "aic", "aiv")

SMALL_MMAD = 10
"""Fractals of the output tile below which accumulating Mmads need a PIPE_M barrier."""
NEVER, WROTE, ALWAYS = range(3)
"""When an access must come after an earlier one of its own pipe: never, where that wrote, in any case."""

Touch = tuple[int, int, int, int, bool]
"""What an access touches: its space by number, where in the entry its first byte stands (0: it is the next number), the
first byte, how many, and whether it writes."""


@dataclass(eq=False)
class Leaf:
    """A statement that ran. ``kind``: access, set, wait, barrier, all, cross set, cross wait or mark; ``place`` is a
    mark's. Of an access: its instruction with the parameters known before (``fixed``) and the names of the others,
    which are first in an entry, its operands as (name, role, space, place of the first byte in an entry or 0, first
    byte), and what was worked out of it already, by seat and parameters."""

    kind: str
    pipe: str
    path: Path
    stmt: Stmt | None = None
    place: tuple[Path, bool] | None = None
    spec: InstrSpec | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    operands: tuple[tuple[str, str, str, int, int], ...] = ()
    known: dict[tuple[Any, ...], tuple[tuple[Touch, ...], int]] = field(default_factory=dict)


class Courses:
    """The courses of a kernel's cores, of longer loops only the first ``sample`` and the last two iterations.

    ``marks`` are passed as entries of their own; without ``numbers`` accesses are only named, not worked out.
    """

    def __init__(self, kernel: Kernel, sample: int, marks: Marks | None = None, numbers: bool = True):
        self.kernel, self.sample, self.numbers, self.marks = kernel, sample, numbers, marks or {}
        self.buffers = {b.name: b for b in kernel.buffers}
        self.leaves: list[Leaf] = []
        self._constants: list[Entry] = []
        self._names: dict[str, str] = {}
        self._spaces: dict[tuple[str, int], int] = {}
        self._quiet = self._quiet_spaces() if numbers else frozenset()
        self._args = {a.name: f"a{i}" for i, a in enumerate(kernel.args)}
        head = ", ".join(("o", "e", "read", *(f"c_{name}" for name in FACTS), *self._args.values()))
        lines = [f"def course({head}):", *self._block(kernel.body, (), 1), " return"]
        scope: dict[str, Any] = {}
        exec(compile("\n".join(lines), "<course>", "exec"), scope)  # made of trees, never of user text
        self._function: Callable[..., None] = scope["course"]

    def of(self, witness: Witness, core: int, seat: int) -> list[Entry]:
        """What core ``core`` (of a mixed kernel: core ``seat`` of group ``core``) issues under ``witness``."""
        kind = self.kernel.core
        facts = [core, witness.cores, 0, int(kind == "aic"), int(kind == "aiv")]
        if kind == "mix":
            facts[3:] = int(seat == 0), int(seat > 0)
            if seat:
                facts[0], facts[2] = core * VECTOR_CORES + seat - 1, seat - 1
        data, args = dict(witness.data), dict(witness.args)

        def read(tensor: str, offset: int) -> int:
            return data[tensor][int(offset)] if tensor in data else 0

        out: list[Entry] = []
        given = [args.get(a.name) for a in self.kernel.args]
        self._function(out.append, self._constants, read, *facts, *given)
        return out

    # -- the function

    def _block(self, block: Sequence[Stmt], prefix: Path, depth: int) -> list[str]:
        lines: list[str] = []
        pad = " " * depth
        for i, stmt in enumerate(block):
            path = (*prefix, i)
            lines += self._mark(path, False, pad)
            lines += [pad + line for line in self._statement(stmt, path)]
            if isinstance(stmt, For):
                lines += self._block(stmt.body, (*path, 0), depth + 1) or [f"{pad} pass"]
            elif isinstance(stmt, If):
                lines.append(f"{pad}if {self._text(stmt.cond)}:")
                lines += self._block(stmt.then, (*path, 0), depth + 1) or [f"{pad} pass"]
                if orelse := self._block(stmt.orelse, (*path, 1), depth + 1):
                    lines += [f"{pad}else:", *orelse]
            lines += self._mark(path, True, pad)
        return lines

    def _mark(self, path: Path, behind: bool, pad: str) -> list[str]:
        scalars = self.marks.get((path, behind))
        if scalars is None:
            return []
        return [pad + self._entry(Leaf("mark", "S", path, place=(path, behind)), [self._whole(s) for s in scalars])]

    def _statement(self, stmt: Stmt, path: Path) -> list[str]:
        if isinstance(stmt, Instr):
            return [self._instruction(stmt, path)]
        if isinstance(stmt, (Let, Assign)):
            return [f"{self._name(stmt.var.name)} = {self._text(stmt.value)}"]
        if isinstance(stmt, For):
            bounds = ", ".join(self._whole(s) for s in (stmt.start, stmt.stop, stmt.step))
            some = f"(r if len(r) <= {self.sample + 2} else (*r[:{self.sample}], *r[-2:]))"
            return [f"r = range({bounds})", f"for {self._name(stmt.var)} in {some}:"]
        if isinstance(stmt, LoadScalar):
            value = "0"
            if isinstance(stmt.ref, GmRef):
                value = f"read({stmt.ref.tensor!r}, {self._text(stmt.ref.offset)})"
            return [f"{self._name(stmt.var.name)} = {value}", self._element(stmt, stmt.ref, "r", path)]
        if isinstance(stmt, StoreScalar):
            return [self._element(stmt, stmt.ref, "w", path)]
        if isinstance(stmt, (SetFlag, WaitFlag)):
            kind, pipe = ("set", stmt.src) if isinstance(stmt, SetFlag) else ("wait", stmt.dst)
            return [self._entry(Leaf(kind, pipe, path, stmt), [self._whole(stmt.id)])]
        if isinstance(stmt, (CrossCoreSet, CrossCoreWait)):
            kind, pipe = ("cross set", stmt.pipe) if isinstance(stmt, CrossCoreSet) else ("cross wait", "S")
            return [self._entry(Leaf(kind, pipe, path, stmt), [self._whole(stmt.id)])]
        if isinstance(stmt, Barrier):
            return [self._entry(Leaf("all" if stmt.pipe == "ALL" else "barrier", stmt.pipe, path, stmt), [])]
        if isinstance(stmt, SyncAll):
            return [self._entry(Leaf("all", "S", path, stmt), [])]
        return []

    def _entry(self, leaf: Leaf, numbers: Sequence[str]) -> str:
        """Appends an entry; one without numbers, or of literals alone, is made once."""
        at = len(self.leaves)
        self.leaves.append(leaf)
        if all(n.lstrip("-").isdigit() for n in numbers):
            self._constants.append((at, *map(int, numbers)))
            return f"o(e[{len(self._constants) - 1}])"
        return f"o(({at}, {', '.join(numbers)}))"

    def _space(self, ref: Ref) -> str:
        return f"GM:{ref.tensor}" if isinstance(ref, GmRef) else self.buffers[ref.buffer].space

    def _spaces_of(self, stmt: Instr) -> dict[str, str]:
        pairs = zip(INSTRUCTIONS[stmt.op].operands, stmt.operands, strict=True)
        return {o.name: "GM" if isinstance(r, GmRef) else self.buffers[r.buffer].space for o, r in pairs}

    def _instruction(self, stmt: Instr, path: Path) -> str:
        spec, spaces = INSTRUCTIONS[stmt.op], self._spaces_of(stmt)
        pairs = list(zip(spec.operands, stmt.operands, strict=True))
        leaf = Leaf("access", spec.pipe_of(spaces), path, stmt, spec=spec)
        numbers: list[str] = []
        if self.numbers:
            leaf.dtypes = {o.name: r.dtype for o, r in pairs}
            leaf.fixed = {k: p for k, p in stmt.params if not isinstance(p, Expr)}
            leaf.names = tuple(k for k, p in stmt.params if isinstance(p, Expr))
            numbers = [self._text(p) for _, p in stmt.params if isinstance(p, Expr)]
            by_hardware = "L0C" if by_unit_flags(stmt) else ""
            leaf.operands = tuple(
                (o.name, o.role, self._space(r), *self._first(r, numbers))
                for o, r in pairs
                if spaces[o.name] != by_hardware and self._space(r) not in self._quiet
            )
        return self._entry(leaf, numbers)

    def _element(self, stmt: Stmt, ref: Ref, role: str, path: Path) -> str:
        numbers: list[str] = []
        leaf = Leaf("access", "S", path, stmt)
        if self.numbers and self._space(ref) not in self._quiet:
            leaf.operands = (("", role, self._space(ref), *self._first(ref, numbers)),)
            leaf.fixed = {"": ITEMSIZE[ref.dtype]}
        return self._entry(leaf, numbers)

    def _first(self, ref: Ref, numbers: list[str]) -> tuple[int, int]:
        """Where the first byte of ``ref`` stands in an entry that begins with ``numbers``, or the byte itself."""
        start = first_byte(ref, self.buffers)
        if not isinstance(start, Expr):
            return 0, int(start)
        numbers.append(self._whole(start))
        return len(numbers), 0

    # -- scalars

    def _name(self, variable: str) -> str:
        return self._names.setdefault(variable, f"v{len(self._names)}")

    def _whole(self, s: Scalar) -> str:
        text = self._text(s)
        return f"int({text})" if " / " in text or "." in text else text

    def _text(self, s: Scalar) -> str:
        if isinstance(s, Var):
            return self._name(s.name)
        if isinstance(s, Arg):
            return self._args[s.name]
        if isinstance(s, Core):
            return f"c_{s.which}"
        if isinstance(s, Choose):
            return f"({self._text(s.a)} if {self._text(s.cond)} else {self._text(s.b)})"
        if isinstance(s, Bin):
            x, y = self._text(s.a), self._text(s.b)
            if s.op in ("min", "max"):
                return f"{s.op}({x}, {y})"
            return f"(-(-{x} // {y}))" if s.op == "cdiv" else f"({x} {s.op} {y})"
        return repr(s)

    # -- accesses

    def touches(self, seat: int, entry: Entry) -> tuple[tuple[Touch, ...], int]:
        """What an access touches, without what cannot make it wait, and when its own pipe can."""
        leaf = self.leaves[entry[0]]
        key = (seat, *entry[1 : 1 + len(leaf.names)])
        found = leaf.known.get(key)
        if found is None:
            found = leaf.known[key] = self._touches(leaf, seat, key[1:])
        return found

    def _touches(self, leaf: Leaf, seat: int, numbers: Sequence[Any]) -> tuple[tuple[Touch, ...], int]:
        own = NEVER
        extents: Mapping[str, int] = leaf.fixed
        if leaf.spec is not None:
            params = {**leaf.fixed, **dict(zip(leaf.names, numbers, strict=True))}
            resolved = Resolved(leaf.spec.name, leaf.dtypes, params)
            extents = leaf.spec.extents(resolved)
            own = _after_own(leaf.pipe, resolved)
        out: list[Touch] = []
        for name, role, space, at, first in leaf.operands:
            many = extents.get(name, 0)
            if many <= 0:
                continue
            where = space, 0 if space.startswith("GM:") else seat  # on-chip memory is each core's own
            number = self._spaces.setdefault(where, len(self._spaces))
            out += [(number, at, first, many, kind == "w") for kind in ("r", "w") if kind in role]
        return tuple(out), own

    def _quiet_spaces(self) -> frozenset[str]:
        """Memory where nothing can make an access wait: never written, or one pipe's own that keeps its order."""
        pipes: dict[str, set[str]] = {}
        written: set[str] = set()
        for stmt in statements(self.kernel.body):
            uses: list[tuple[Ref, str]] = []
            pipe = "S"
            if isinstance(stmt, Instr):
                spec = INSTRUCTIONS[stmt.op]
                pipe = spec.pipe_of(self._spaces_of(stmt))
                uses = [(r, o.role) for o, r in zip(spec.operands, stmt.operands, strict=True)]
            elif isinstance(stmt, (LoadScalar, StoreScalar)):
                uses = [(stmt.ref, "r" if isinstance(stmt, LoadScalar) else "w")]
            for ref, role in uses:
                pipes.setdefault(self._space(ref), set()).add(pipe)
                if "w" in role:
                    written.add(self._space(ref))
        shared = len(seats(self.kernel)) > 1
        return frozenset(
            space
            for space, by in pipes.items()
            if space not in written
            or (len(by) == 1 and not by & {"V", "M"} and not (shared and space.startswith("GM:")))
        )


def _after_own(pipe: str, r: Resolved) -> int:
    if pipe == "V":
        return ALWAYS
    if pipe == "M" and r.op == "Mmad":
        small = -(-r.n("m") // 16) * -(-r.n("n") // 16) < SMALL_MMAD
        return WROTE if small and not r.p["cmatrixInitVal"] else NEVER
    return NEVER


def by_unit_flags(stmt: Stmt) -> bool:
    """Whether ``stmt`` is a Fixpipe that the cube hands its tile piece by piece: hardware orders its reads of L0C."""
    return isinstance(stmt, Instr) and stmt.op == "Fixpipe" and stmt.param("unitFlag") != 0
