"""A kernel made ready to be timed: specialised to numbers, reduced to what time depends on, compiled to ``nodes``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.kernel_ir import (
    ITEMSIZE,
    PIPES,
    Assign,
    Barrier,
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
    LocalRef,
    Ref,
    SetFlag,
    Stmt,
    StoreScalar,
    SyncAll,
    WaitFlag,
)  # fmt: skip
from moec.codegen.scalar import Bin, Expr, Scalar, binary
from moec.targets.ascend.cost.vector import IN_STEP, TWO_SOURCES, base_name
from moec.targets.ascend.machine import Machine
from moec.targets.ascend.model.effects import Analysis, Effect
from moec.targets.ascend.model.nodes import (
    BarrierNode,
    BranchNode,
    FlagNode,
    InstrNode,
    LetNode,
    LoopNode,
    Node,
    Program,
    SyncNode,
    Unit,
    syncs,
)  # fmt: skip
from moec.targets.ascend.model.terms import (
    CORE_NAMES,
    Root,
    Slots,
    constant_term,
    exact,
    load_of,
    modulo,
    substitute,
    unique,
    variables,
)  # fmt: skip

PIPE_INDEX = {name: i - 1 for i, name in enumerate(PIPES)}
"""Engine index of each pipe; the scalar unit is -1."""
BANK_SPAN = 512
"""Bytes after which the bank groups of UB repeat (16 groups of 32 bytes)."""
BANK_BYTES = 65536
"""Bytes of UB whose banks have one rank in their groups (16 groups of 128 rows of 32 bytes)."""
WORTH_A_UNIT = 4
"""Nodes between two waits for other cores from which on their outcome is kept."""
COUNTED = ("u8", "u16", "u32", "u64", "i32", "bool")
"""Parameter kinds that a cost may depend on; values and names do not enter it."""


def compile_kernel(
    kernel: Kernel, machine: Machine, args: Mapping[str, int], cores: int, read: Callable[[str, int], int | float],
    kind: str,
) -> Program:  # fmt: skip
    """``kernel`` for given arguments, number of cores and kind of core (aic, aiv); ``read`` gives device data by
    (tensor, element)."""
    return _Compiler(kernel, machine, numbers_in(kernel, args, cores, kind), read).program()


def numbers_in(kernel: Kernel, args: Mapping[str, int], cores: int, kind: str) -> tuple[Stmt, ...]:
    """The body of ``kernel`` with its arguments, its number of cores and the kind of core put in."""
    return _numbers_in(kernel, tuple(args.items()), cores, kind)


@lru_cache(maxsize=64)
def _numbers_in(kernel: Kernel, args: tuple[tuple[str, int], ...], cores: int, kind: str) -> tuple[Stmt, ...]:
    known: dict[str, Scalar] = {f"arg.{name}": value for name, value in args}
    known |= {"core.num": cores, "core.aic": int(kind == "aic"), "core.aiv": int(kind == "aiv")}
    return tuple(_specialise(s, known) for s in kernel.body)


def _specialise(stmt: Stmt, known: Mapping[str, Scalar]) -> Stmt:
    def sub(s: Scalar) -> Scalar:
        return substitute(s, known)

    def ref(r: Ref) -> Ref:
        if isinstance(r, GmRef):
            return replace(r, offset=sub(r.offset))
        return replace(r, slot=sub(r.slot), offset=sub(r.offset))

    if isinstance(stmt, Instr):
        params = tuple((k, sub(v) if isinstance(v, Expr) else v) for k, v in stmt.params)
        return Instr(stmt.op, tuple(ref(r) for r in stmt.operands), params)
    if isinstance(stmt, For):
        inner = tuple(_specialise(s, known) for s in stmt.body)
        return For(stmt.var, sub(stmt.start), sub(stmt.stop), sub(stmt.step), inner)
    if isinstance(stmt, If):
        then, other = (tuple(_specialise(s, known) for s in part) for part in (stmt.then, stmt.orelse))
        return If(sub(stmt.cond), then, other)
    if isinstance(stmt, (Let, Assign)):
        return replace(stmt, value=sub(stmt.value))
    if isinstance(stmt, LoadScalar):
        return LoadScalar(stmt.var, ref(stmt.ref))
    if isinstance(stmt, (SetFlag, WaitFlag, CrossCoreSet, CrossCoreWait)):
        return replace(stmt, id=sub(stmt.id))
    return stmt


def walk(stmts: Sequence[Stmt]) -> Iterator[Stmt]:
    """Every statement, outer before inner."""
    for stmt in stmts:
        yield stmt
        if isinstance(stmt, For):
            yield from walk(stmt.body)
        elif isinstance(stmt, If):
            yield from walk(stmt.then)
            yield from walk(stmt.orelse)


class _Compiler:
    def __init__(
        self, kernel: Kernel, machine: Machine, body: tuple[Stmt, ...], read: Callable[[str, int], int | float]
    ):
        self.kernel, self.machine, self.body = kernel, machine, body
        self.buffers = {b.name: b for b in kernel.buffers}
        index = {name: i for i, name in enumerate(CORE_NAMES.values())}
        for stmt in walk(body):
            name = stmt.var if isinstance(stmt, For) else stmt.var.name if isinstance(stmt, (Let, LoadScalar)) else ""
            if name:
                index.setdefault(name, len(index))
        self.slots = Slots(index, read)
        self.uids = 0
        self.nodes: list[InstrNode] = []
        self.line = int(machine["memory.line"])
        self.analysis = Analysis(
            {s: self._instruction_roots(s) for s in walk(body) if isinstance(s, Instr)}, frozenset()
        )
        self.analysis.relevant = self._relevant()

    def program(self) -> Program:
        main = self._unit(self._block(self.body), self.analysis.block(self.body))
        gm = tuple(p.name for p in self.kernel.params)
        paths = tuple(sorted({n.path for n in self.nodes if n.path}))
        dtypes = tuple(sorted({n.dtypes["a"] for n in self.nodes if n.spec.name == "Mmad"}))
        core = {which: self.slots.index[name] for which, name in CORE_NAMES.items()}
        return Program(main, len(self.slots.index), core, gm, paths, dtypes, tuple(self.nodes))

    # -- what time depends on

    def _instruction_roots(self, instr: Instr) -> tuple[Root, ...]:
        names, exprs = self._numbers(instr)
        roots = [r for e in exprs[: len(names)] for r in exact(e)]
        for e in exprs[len(names) :]:
            root = modulo(e.a, e.b) if isinstance(e, Bin) and isinstance(e.b, int) else None
            roots += [root] if root is not None else []
        return unique(roots)

    def _numbers(self, instr: Instr) -> tuple[tuple[str, ...], tuple[Scalar, ...]]:
        """Names and scalars of the run-time parameters, then device offset and distances in UB: from the second source
        to the first, from the first and the second to the result (-1 where there is none, or they cannot meet)."""
        spec = INSTRUCTIONS[instr.op]
        kinds = {p.name: p.kind for p in spec.params}
        run_time = [(k, v) for k, v in instr.params if isinstance(v, Expr) and kinds[k] in COUNTED]
        offset: Scalar = 0
        for ref in instr.operands:
            if isinstance(ref, GmRef):
                offset = _mod(binary("*", ref.offset, ITEMSIZE[ref.dtype]), self.line)
        names = tuple(k for k, _ in run_time)
        return names, (*(v for _, v in run_time), offset, *self._distances(instr))

    def _distances(self, instr: Instr) -> tuple[Scalar, Scalar, Scalar]:
        name = base_name(instr.op)
        if name not in IN_STEP:
            return -1, -1, -1
        refs = dict(zip((o.name for o in INSTRUCTIONS[instr.op].operands), instr.operands, strict=True))
        sources = [r for n in ("src", "src0", "src1") if isinstance(r := refs.get(n), LocalRef)]
        reads: Scalar = -1
        if name in TWO_SOURCES and len(sources) == 2:
            first, second = (self._address(r) for r in sources)
            reads = _mod(binary("-", first, second), BANK_SPAN) if first != second else -1
        writes: list[Scalar] = [-1, -1]
        result = refs.get("dst")
        for i, source in enumerate(sources[:2]):
            if isinstance(result, LocalRef) and self._bank(source) == self._bank(result) != -1:
                writes[i] = _mod(binary("-", self._address(result), self._address(source)), BANK_SPAN)
        return reads, writes[0], writes[1]

    def _bank(self, ref: LocalRef) -> int:
        """The 64 KiB of UB that hold the whole buffer, whose banks have one rank; -1 where it crosses from one to the
        next."""
        b = self.buffers[ref.buffer]
        first, last = b.offset // BANK_BYTES, (b.offset + b.bytes - 1) // BANK_BYTES
        return first if first == last else -1

    def _double_l1(self, buffer: str) -> bool:
        return self.buffers[buffer].space == "L1" and self.buffers[buffer].slots > 1

    def _address(self, ref: Ref) -> Scalar:
        assert isinstance(ref, LocalRef)
        b = self.buffers[ref.buffer]
        inner = binary("*", ref.offset, ITEMSIZE[ref.dtype])
        return binary("+", binary("+", b.offset, binary("*", ref.slot, b.slot_bytes)), inner)

    def _relevant(self) -> frozenset[str]:
        seeds: set[str] = set()
        for roots in self.analysis.instruction_roots.values():
            for root in roots:
                seeds |= variables(root.expr)
        for stmt in walk(self.body):
            if isinstance(stmt, For):
                seeds |= variables(stmt.start) | variables(stmt.stop) | variables(stmt.step)
            elif isinstance(stmt, If):
                seeds |= variables(stmt.cond)
            elif isinstance(stmt, (SetFlag, WaitFlag, CrossCoreSet, CrossCoreWait)):
                seeds |= variables(stmt.id)
        before = -1
        while len(seeds) != before:
            before = len(seeds)
            for stmt in walk(self.body):
                if isinstance(stmt, (Let, Assign, LoadScalar)) and stmt.var.name in seeds:
                    value = load_of(stmt.ref) if isinstance(stmt, LoadScalar) else stmt.value
                    seeds |= variables(value)
        return frozenset(seeds)

    # -- nodes

    def _uid(self) -> int:
        self.uids += 1
        return self.uids

    def _unit(self, nodes: tuple[Node, ...], effect: Effect, waits: bool = False) -> Unit:
        out = tuple(self.slots.index[name] for name in effect.out)
        return Unit(self._uid(), nodes, self.slots.key(effect.key()), out, waits or any(syncs(n) for n in nodes))

    def _block(self, stmts: Sequence[Stmt]) -> tuple[Node, ...]:
        """The nodes of ``stmts``; where some wait for other cores, what lies between those is a unit of its own."""
        each = [(stmt, tuple(self._node(stmt))) for stmt in stmts]
        if not any(syncs(n) for _, nodes in each for n in nodes):
            return _gathered(n for _, nodes in each for n in nodes)
        out: list[Node] = []
        between: list[tuple[Stmt, tuple[Node, ...]]] = []
        for stmt, nodes in (*each, (None, ())):
            if stmt is not None and not any(syncs(n) for n in nodes):
                between.append((stmt, nodes))
                continue
            quiet = tuple(n for _, part in between for n in part)
            if len(quiet) >= WORTH_A_UNIT:
                out.append(self._unit(_gathered(quiet), self.analysis.block([s for s, _ in between], keep=True)))
            else:
                out += quiet
            between = []
            out += nodes
        return tuple(out)

    def _node(self, stmt: Stmt) -> Iterator[Node]:
        compile_ = self.slots.compile
        op = int(self.machine["scalar.op"])
        if isinstance(stmt, Instr):
            yield self._instruction(stmt)
        elif isinstance(stmt, (SetFlag, WaitFlag)):
            raises = isinstance(stmt, SetFlag)
            yield FlagNode(raises, PIPE_INDEX[stmt.src], PIPE_INDEX[stmt.dst], compile_(stmt.id))
        elif isinstance(stmt, Barrier):
            if stmt.pipe != "S":  # the scalar unit is in order by itself
                yield BarrierNode(PIPE_INDEX.get(stmt.pipe, -1))
        elif isinstance(stmt, (Let, Assign)):
            yield self._let(stmt.var.name, stmt.value, op)
        elif isinstance(stmt, LoadScalar):
            where = "load_gm" if isinstance(stmt.ref, GmRef) else "load_local"
            yield self._let(stmt.var.name, load_of(stmt.ref), int(self.machine[f"scalar.{where}"]))
        elif isinstance(stmt, StoreScalar):
            yield LetNode(-1, None, int(self.machine["scalar.store"]))
        elif isinstance(stmt, For):
            yield self._loop(stmt)
        elif isinstance(stmt, If):
            yield LetNode(-1, None, op)
            then, orelse = self._block(stmt.then), self._block(stmt.orelse)
            yield BranchNode(compile_(stmt.cond), then, orelse, any(syncs(n) for n in (*then, *orelse)))
        elif isinstance(stmt, SyncAll):
            yield SyncNode("all")
        elif isinstance(stmt, CrossCoreSet):
            yield SyncNode("set", stmt.mode, PIPE_INDEX[stmt.pipe], compile_(stmt.id))
        elif isinstance(stmt, CrossCoreWait):
            yield SyncNode("wait", id=compile_(stmt.id))
        else:
            assert isinstance(stmt, Comment)

    def _let(self, name: str, value: Scalar, cycles: int) -> LetNode:
        if name not in self.analysis.relevant:
            return LetNode(-1, None, cycles)
        return LetNode(self.slots.index[name], self.slots.compile(value), cycles)

    def _loop(self, stmt: For) -> LoopNode:
        effect = self.analysis.block(stmt.body)
        step = LetNode(-1, None, int(self.machine["scalar.op"]))
        body = self._unit(_gathered((step, *self._block(stmt.body))), effect)
        varying: list[Root] | None = [root for root in effect.key() if stmt.var in variables(root.expr)]
        if any(variables(root.expr) & set(effect.out) for root in varying or ()):
            varying = None
        whole = self._unit((), self.analysis.loop(stmt), body.syncs)
        keyed = None if varying is None else self.slots.key(varying)
        bounds = self.slots.compile(stmt.start, stmt.stop, stmt.step)
        return LoopNode(self.slots.index[stmt.var], bounds, body, whole, keyed, varying == [], body.syncs)

    def _instruction(self, stmt: Instr) -> InstrNode:
        spec = INSTRUCTIONS[stmt.op]
        dtypes = {o.name: r.dtype for o, r in zip(spec.operands, stmt.operands, strict=True)}
        spaces = {
            o.name: "GM" if isinstance(r, GmRef) else self.buffers[r.buffer].space
            for o, r in zip(spec.operands, stmt.operands, strict=True)
        }
        gm = [(o, r) for o, r in zip(spec.operands, stmt.operands, strict=True) if isinstance(r, GmRef)]
        names, numbers = self._numbers(stmt)
        fixed = {k: v if not isinstance(v, Expr) else 0 for k, v in stmt.params}
        node = InstrNode(
            self._uid(), spec, dtypes, spec.path_of(spaces) if not isinstance(spec.pipe, str) else "",
            PIPE_INDEX[spec.pipe_of(spaces)], gm[0][1].tensor if gm else "", fixed, names, self.slots.compile(*numbers),
            bool(gm) and "w" in gm[0][0].role,
            any(isinstance(r, LocalRef) and self._double_l1(r.buffer) for r in stmt.operands),
        )  # fmt: skip
        self.nodes.append(node)
        return node


def _gathered(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """``nodes`` where scalar statements one after the other take all their cycles in the first of them."""
    out: list[Node] = []
    at = -1  # where the first of the present run of scalar statements stands in ``out``
    for node in nodes:
        if not isinstance(node, LetNode):
            at = -1
            out.append(node)
            continue
        first = out[at] if at >= 0 else None
        if isinstance(first, LetNode):
            out[at] = replace(first, cycles=first.cycles + node.cycles)
            if node.value is None:
                continue
            node = replace(node, cycles=0)
        else:
            at = len(out)
        out.append(node)
    return tuple(out)


def _mod(expr: Scalar, modulus: int) -> Scalar:
    """``expr % modulus`` without the terms that the modulus removes."""
    root = modulo(expr, modulus)
    constant = constant_term(expr) % modulus
    return constant if root is None else binary("%", binary("+", root.expr, constant), modulus)
