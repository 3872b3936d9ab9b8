"""Runs a kernel's statements with concrete integers: the sequence of instructions that one core's scalar unit issues.

``trace`` serves the static checks; the simulator may use it too. No data moves: only scalars are computed, and device
memory is read where the witness gives integers (expert counts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moec.codegen.instructions import INSTRUCTIONS, Resolved
from moec.codegen.kernel_ir import (
    ITEMSIZE,
    Assign,
    Barrier,
    Buffer,
    Comment,
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
)
from moec.codegen.scalar import Arg, Bin, Choose, Core, Expr, Number, Scalar, Var, binary

VECTOR_CORES = 2
"""Vector cores to a cube core in a mixed kernel (KERNEL_TYPE_MIX_AIC_1_2)."""

Path = tuple[int, ...]
"""Where a statement stands: index in its block, then 0 (body, then) or 1 (else) and the index in that block, and so
on."""


@dataclass(slots=True)
class Access:
    """Bytes ``lo`` up to ``hi`` of a memory space (of the tensor named, for device memory)."""

    space: str
    lo: int
    hi: int
    write: bool


@dataclass(slots=True)
class Event:
    """One statement executed. ``id`` is the evaluated event id of flags, ``resolved`` the numbers of an instruction."""

    stmt: Stmt
    path: Path
    pipe: str
    accesses: Sequence[Access]
    resolved: Resolved | None = None
    id: int = 0


def _code(s: Scalar) -> str:
    if isinstance(s, Var):
        return f"v[{s.name!r}]"
    if isinstance(s, Arg):
        return f"a[{s.name!r}]"
    if isinstance(s, Core):
        return f"c[{s.which!r}]"
    if isinstance(s, Choose):
        return f"({_code(s.a)} if {_code(s.cond)} else {_code(s.b)})"
    if isinstance(s, Bin):
        x, y = _code(s.a), _code(s.b)
        if s.op in ("min", "max"):
            return f"{s.op}({x}, {y})"
        if s.op == "cdiv":
            return f"(-(-{x} // {y}))"
        return f"({x} {s.op} {y})"
    return repr(s)


Env = tuple[dict[str, Number], Mapping[str, int], Mapping[str, int]]
_compiled: dict[Scalar, Callable[[Any, Any, Any], Number]] = {}


def compiled(s: Scalar) -> Callable[[Any, Any, Any], Number]:
    """``s`` as a Python function of (variables, arguments, core)."""
    fn = _compiled.get(s)
    if fn is None:
        fn = eval(f"lambda v, a, c: {_code(s)}")  # the text is made from the tree above, never from user input
        _compiled[s] = fn
    return fn


def value(s: Scalar, env: Env) -> Number:
    return s if not isinstance(s, Expr) else compiled(s)(*env)


def first_byte(ref: Ref, buffers: Mapping[str, Buffer]) -> Scalar:
    """Where ``ref`` starts, as a scalar: in its tensor, or in its memory."""
    offset = binary("*", ref.offset, ITEMSIZE[ref.dtype])
    if isinstance(ref, GmRef):
        return offset
    b = buffers[ref.buffer]
    return binary("+", binary("+", binary("*", ref.slot, b.slot_bytes), b.offset), offset)


class _Plan:
    """An instruction prepared for repeated evaluation."""

    __slots__ = ("spec", "dtypes", "fixed", "open", "operands", "pipe")

    def __init__(self, stmt: Instr, buffers: Mapping[str, Buffer]):
        self.spec = INSTRUCTIONS[stmt.op]
        pairs = list(zip(self.spec.operands, stmt.operands, strict=True))
        self.dtypes = {o.name: ref.dtype for o, ref in pairs}
        self.fixed = {k: p for k, p in stmt.params if not isinstance(p, Expr)}
        self.open = [(k, compiled(p)) for k, p in stmt.params if isinstance(p, Expr)]
        spaces = {o.name: "GM" if isinstance(ref, GmRef) else buffers[ref.buffer].space for o, ref in pairs}
        self.pipe = self.spec.pipe_of(spaces)
        self.operands = [
            (
                o.name,
                o.role,
                f"GM:{ref.tensor}" if isinstance(ref, GmRef) else spaces[o.name],
                compiled(first_byte(ref, buffers)),
            )
            for o, ref in pairs
        ]


class Interpreter:
    """Walks one core. ``sample`` keeps only the first ``sample`` and the last two iterations of longer loops.

    In a mixed kernel ``core`` is the group; ``seat`` is which of its cores: 0 the cube core, 1 and 2 the vector cores.
    Without ``numbers`` instructions and scalar accesses are only named, not worked out.
    """

    def __init__(
        self,
        kernel: Kernel,
        witness: Witness,
        core: int = 0,
        sample: int | None = None,
        seat: int = 0,
        numbers: bool = True,
    ):
        self.kernel, self.sample, self.numbers = kernel, sample, numbers
        self.data = dict(witness.data)
        facts = {"idx": core, "num": witness.cores, "sub": 0}
        facts |= {"aic": int(kernel.core == "aic"), "aiv": int(kernel.core == "aiv")}
        if kernel.core == "mix":
            facts |= {"aic": int(seat == 0), "aiv": int(seat > 0)}
            if seat:
                facts |= {"idx": core * VECTOR_CORES + seat - 1, "sub": seat - 1}
        self.env: Env = ({}, dict(witness.args), facts)
        self.buffers = {b.name: b for b in kernel.buffers}
        self._plans: dict[int, _Plan] = {}

    def run(self) -> Iterator[Event]:
        yield from self._block(self.kernel.body, ())

    def start_of(self, ref: Ref) -> int:
        """First byte of ``ref``: in its tensor, or in its memory."""
        return int(compiled(first_byte(ref, self.buffers))(*self.env))

    def _element(self, ref: Ref, write: bool) -> Sequence[Access]:
        if not self.numbers:
            return ()
        space = f"GM:{ref.tensor}" if isinstance(ref, GmRef) else self.buffers[ref.buffer].space
        lo = self.start_of(ref)
        return (Access(space, lo, lo + ITEMSIZE[ref.dtype], write),)

    def instruction(self, stmt: Instr, path: Path = ()) -> Event:
        """``stmt`` with numbers in the current environment."""
        plan = self._plans.get(id(stmt))
        if plan is None:
            plan = self._plans[id(stmt)] = _Plan(stmt, self.buffers)
        if not self.numbers:
            return Event(stmt, path, plan.pipe, ())
        env = self.env
        params = dict(plan.fixed)
        for name, fn in plan.open:
            params[name] = fn(*env)
        resolved = Resolved(stmt.op, plan.dtypes, params)
        extents = plan.spec.extents(resolved)
        accesses = []
        for name, role, space, start in plan.operands:
            nbytes = extents.get(name, 0)
            if nbytes > 0:
                lo = int(start(*env))
                if "r" in role:
                    accesses.append(Access(space, lo, lo + nbytes, False))
                if "w" in role:
                    accesses.append(Access(space, lo, lo + nbytes, True))
        return Event(stmt, path, plan.pipe, accesses, resolved)

    def _block(self, block: Sequence[Stmt], prefix: Path) -> Iterator[Event]:
        variables, env = self.env[0], self.env
        for i, stmt in enumerate(block):
            path = (*prefix, i)
            if isinstance(stmt, Instr):
                yield self.instruction(stmt, path)
            elif isinstance(stmt, (Let, Assign)):
                variables[stmt.var.name] = value(stmt.value, env)
            elif isinstance(stmt, For):
                trips: Sequence[int] = range(
                    int(value(stmt.start, env)), int(value(stmt.stop, env)), int(value(stmt.step, env))
                )
                if self.sample is not None and len(trips) > self.sample + 2:
                    trips = [*trips[: self.sample], *trips[-2:]]
                for n in trips:
                    variables[stmt.var] = n
                    yield from self._block(stmt.body, (*path, 0))
            elif isinstance(stmt, If):
                if value(stmt.cond, env):
                    yield from self._block(stmt.then, (*path, 0))
                else:
                    yield from self._block(stmt.orelse, (*path, 1))
            elif isinstance(stmt, LoadScalar):
                variables[stmt.var.name] = self._read(stmt.ref)
                yield Event(stmt, path, "S", self._element(stmt.ref, False))
            elif isinstance(stmt, StoreScalar):
                yield Event(stmt, path, "S", self._element(stmt.ref, True))
            elif isinstance(stmt, SetFlag):
                yield Event(stmt, path, stmt.src, (), id=int(value(stmt.id, env)))
            elif isinstance(stmt, WaitFlag):
                yield Event(stmt, path, stmt.dst, (), id=int(value(stmt.id, env)))
            elif isinstance(stmt, Barrier):
                yield Event(stmt, path, stmt.pipe, ())
            elif isinstance(stmt, SyncAll):
                yield Event(stmt, path, "S", ())
            elif isinstance(stmt, CrossCoreWait):
                yield Event(stmt, path, "S", (), id=int(value(stmt.id, env)))
            elif isinstance(stmt, CrossCoreSet):
                yield Event(stmt, path, stmt.pipe, (), id=int(value(stmt.id, env)))
            else:
                assert isinstance(stmt, Comment)

    def _read(self, ref: Ref) -> Number:
        """The witness's number, or 0 where it has none."""
        if isinstance(ref, GmRef) and ref.tensor in self.data:
            return self.data[ref.tensor][int(value(ref.offset, self.env))]
        return 0


def trace(
    kernel: Kernel,
    witness: Witness,
    core: int = 0,
    sample: int | None = None,
    seat: int = 0,
    numbers: bool = True,
) -> Iterator[Event]:
    """Everything core ``core`` (of a mixed kernel: core ``seat`` of group ``core``) issues under ``witness``, in
    order."""
    return Interpreter(kernel, witness, core, sample, seat, numbers).run()


def seats(kernel: Kernel) -> range:
    """The cores of a group: one, or a cube core and its vector cores."""
    return range(1 + VECTOR_CORES if kernel.core == "mix" else 1)
