"""Which statements of a kernel need ordering: candidate flags and barriers, read from the structure of the program.

Two leaves conflict when they touch the same bytes and one writes. Their order is kept at the block that holds both: a
flag raised after the child that contains the first, awaited before the child that contains the second. If the second
comes earlier in a loop body, the flag is carried: awaited in the next iteration, raised once before the outermost loop
and taken down once after it. Buffers indexed by a slot get one event id per slot, so that slots run independently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from moec.codegen.courses import SMALL_MMAD, by_unit_flags
from moec.codegen.instructions import INSTRUCTIONS, Resolved
from moec.codegen.interpret import Path
from moec.codegen.kernel_ir import (
    ITEMSIZE,
    Assign,
    Buffer,
    For,
    GmRef,
    If,
    Instr,
    Kernel,
    Let,
    LoadScalar,
    Ref,
    Stmt,
    StoreScalar,
)
from moec.codegen.scalar import Expr, Scalar, binary, ceildiv, names_in

FAR = 1 << 62


@dataclass(frozen=True, slots=True)
class Sync:
    """A flag from pipe ``src`` (after child ``after`` of ``block``) to pipe ``dst`` (before child ``before``), or, when
    the pipes are equal, a barrier before child ``before``. ``slot`` picks among ``slots`` event ids. ``when`` guards a
    barrier (None: always). A carried flag is raised before the outermost loop and taken down after it, or, if ``near``,
    around the innermost one."""

    src: str
    dst: str
    block: Path
    after: int
    before: int
    carried: bool = False
    slot: Scalar = 0
    slots: int = 1
    when: Scalar | None = None
    near: bool = False

    @property
    def is_barrier(self) -> bool:
        return self.src == self.dst


@dataclass(frozen=True, slots=True)
class Use:
    """One operand of a leaf: static byte range, the buffer and slot expression if it is slotted."""

    space: str
    lo: int
    hi: int
    write: bool
    buffer: str = ""
    slot: Scalar = 0
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Leaf:
    path: Path
    pipe: str
    uses: tuple[Use, ...]
    stmt: Stmt


def leaves(kernel: Kernel) -> list[Leaf]:
    """Every statement that touches memory, in program order."""
    buffers = {b.name: b for b in kernel.buffers}
    return list(_leaves(kernel.body, (), buffers))


def _leaves(block: Sequence[Stmt], prefix: Path, buffers: dict[str, Buffer]) -> Iterator[Leaf]:
    for i, stmt in enumerate(block):
        path = (*prefix, i)
        if isinstance(stmt, For):
            yield from _leaves(stmt.body, (*path, 0), buffers)
        elif isinstance(stmt, If):
            yield from _leaves(stmt.then, (*path, 0), buffers)
            yield from _leaves(stmt.orelse, (*path, 1), buffers)
        elif isinstance(stmt, LoadScalar):
            yield Leaf(path, "S", (_use(stmt.ref, ITEMSIZE[stmt.ref.dtype], False, buffers),), stmt)
        elif isinstance(stmt, StoreScalar):
            yield Leaf(path, "S", (_use(stmt.ref, ITEMSIZE[stmt.ref.dtype], True, buffers),), stmt)
        elif isinstance(stmt, Instr):
            yield _instruction(stmt, path, buffers)


def _instruction(stmt: Instr, path: Path, buffers: dict[str, Buffer]) -> Leaf:
    spec = INSTRUCTIONS[stmt.op]
    extents = None
    if not any(isinstance(p, Expr) for _, p in stmt.params):
        dtypes = {o.name: ref.dtype for o, ref in zip(spec.operands, stmt.operands, strict=True)}
        extents = spec.extents(Resolved(stmt.op, dtypes, {k: p for k, p in stmt.params if not isinstance(p, Expr)}))
    uses, spaces = [], {}
    for o, ref in zip(spec.operands, stmt.operands, strict=True):
        spaces[o.name] = "GM" if isinstance(ref, GmRef) else buffers[ref.buffer].space
        nbytes = None if extents is None else extents.get(o.name, 0)
        if nbytes == 0 or (spaces[o.name] == "L0C" and by_unit_flags(stmt)):
            continue
        uses += [_use(ref, nbytes, role == "w", buffers) for role in ("r", "w") if role in o.role]
    return Leaf(path, spec.pipe_of(spaces), tuple(uses), stmt)


def _use(ref: Ref, nbytes: int | None, write: bool, buffers: dict[str, Buffer]) -> Use:
    if isinstance(ref, GmRef):
        return Use(f"GM:{ref.tensor}", 0, FAR, write)
    b = buffers[ref.buffer]
    if isinstance(ref.slot, Expr):
        return Use(b.space, b.offset, b.offset + b.bytes, write, b.name, ref.slot, b.slots)
    lo = b.offset + int(ref.slot) * b.slot_bytes
    if isinstance(ref.offset, Expr) or nbytes is None:
        return Use(b.space, lo, lo + b.slot_bytes, write)
    lo += int(ref.offset) * ITEMSIZE[ref.dtype]
    return Use(b.space, lo, lo + nbytes, write)


def candidates(kernel: Kernel) -> list[Sync]:
    """Sufficient synchronisation for the kernel, without duplicates and without flags that a tighter one implies."""
    found: dict[Sync, None] = {}
    all_leaves = leaves(kernel)
    for i, u in enumerate(all_leaves):
        for v in all_leaves[i:]:
            for slot, slots, u_writes, v_writes in _shared(u, v):
                forward = _sync(kernel, u, v, slot, slots, u_writes)
                backward = _sync(kernel, v, u, slot, slots, v_writes)
                found.update(dict.fromkeys(s for s in (forward, backward) if s is not None))
    syncs = list(found)
    return [s for s in syncs if not any(_implies(o, s) for o in syncs if o is not s)]


def _shared(u: Leaf, v: Leaf) -> Iterator[tuple[Scalar, int, bool, bool]]:
    """The slots on which the two collide, and whether u or v writes there."""
    for a in u.uses:
        for b in v.uses:
            if a.space == b.space and a.lo < b.hi and b.lo < a.hi and (a.write or b.write):
                slotted = a.slots > 1 and a.buffer == b.buffer and a.slot == b.slot
                yield (a.slot, a.slots, a.write, b.write) if slotted else (0, 1, a.write, b.write)


def _sync(kernel: Kernel, first: Leaf, then: Leaf, slot: Scalar, slots: int, first_writes: bool) -> Sync | None:
    """What keeps ``then`` after ``first``, where ``then`` can come after it at all."""
    block, after, before, exclusive = _meet(first.path, then.path)
    carried = exclusive or after >= before
    if carried and not any(isinstance(s, For) for s in _ancestors(kernel, block)):
        return None
    if first.pipe == then.pipe:
        return _barrier(first, then, block, before, first_writes)
    if slots > 1 and not _stable(kernel, slot, block, min(after, before), max(after, before)):
        slot, slots = 0, 1
    return Sync(first.pipe, then.pipe, block, after, before, carried, slot if slots > 1 else 0, slots)


def _barrier(first: Leaf, then: Leaf, block: Path, before: int, first_writes: bool) -> Sync | None:
    if then.pipe == "V":
        return Sync("V", "V", block, before, before)
    if then.pipe == "M" and first_writes:
        assert isinstance(then.stmt, Instr)
        m, n, fresh = then.stmt.param("m"), then.stmt.param("n"), then.stmt.param("cmatrixInitVal")
        assert not isinstance(m, str) and not isinstance(n, str) and not isinstance(fresh, str)
        small = binary("<", binary("*", ceildiv(m, 16), ceildiv(n, 16)), SMALL_MMAD)
        if fresh is not True and small != 0:
            at = then.path[-1]
            return Sync("M", "M", then.path[:-1], at, at, when=small if isinstance(small, Expr) else None)
    return None


def _meet(a: Path, b: Path) -> tuple[Path, int, int, bool]:
    """The block holding both, their children in it, and whether they are in opposite branches of one If."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            if i % 2 == 0:
                return a[:i], x, y, False
            return a[: i - 1], a[i - 1], a[i - 1], True
    return a[:-1], a[-1], a[-1], False


def _ancestors(kernel: Kernel, block: Path) -> list[Stmt]:
    """The loops and branches around a block, outermost first."""
    out: list[Stmt] = []
    body = kernel.body
    for i in range(0, len(block), 2):
        stmt = body[block[i]]
        out.append(stmt)
        assert isinstance(stmt, (For, If))
        body = stmt.body if isinstance(stmt, For) else (stmt.then, stmt.orelse)[block[i + 1]]
    return out


def block_at(kernel: Kernel, block: Path) -> Sequence[Stmt]:
    body: Sequence[Stmt] = kernel.body
    for i in range(0, len(block), 2):
        stmt = body[block[i]]
        assert isinstance(stmt, (For, If))
        body = stmt.body if isinstance(stmt, For) else (stmt.then, stmt.orelse)[block[i + 1]]
    return body


def _stable(kernel: Kernel, slot: Scalar, block: Path, lo: int, hi: int) -> bool:
    """Whether ``slot`` has one value between children ``lo`` and ``hi`` of ``block``."""
    moved: set[str] = set()
    for stmt in block_at(kernel, block)[lo : hi + 1]:
        _assigned(stmt, moved)
    return not (names_in(slot) & moved)


def _assigned(stmt: Stmt, into: set[str]) -> None:
    if isinstance(stmt, (Let, Assign, LoadScalar)):
        into.add(stmt.var.name)
    elif isinstance(stmt, For):
        into.add(stmt.var)
        for s in stmt.body:
            _assigned(s, into)
    elif isinstance(stmt, If):
        for s in (*stmt.then, *stmt.orelse):
            _assigned(s, into)


def _implies(strong: Sync, weak: Sync) -> bool:
    """Whether ``strong`` alone orders everything that ``weak`` orders."""
    return (
        not weak.is_barrier
        and (strong.src, strong.dst, strong.block, strong.carried) == (weak.src, weak.dst, weak.block, weak.carried)
        and strong.after >= weak.after
        and strong.before <= weak.before
        and ((strong.slot, strong.slots) == (weak.slot, weak.slots) or not strong.carried)
        and (strong.after, strong.before) != (weak.after, weak.before)
    )


def innermost_loop(kernel: Kernel, block: Path) -> Path:
    """Path of the loop next around ``block``."""
    found = [i for i, stmt in enumerate(_ancestors(kernel, block)) if isinstance(stmt, For)]
    return block[: 2 * found[-1] + 1]


def outermost_loop(kernel: Kernel, block: Path) -> Path:
    """Path of the outermost loop around ``block``."""
    for i, stmt in enumerate(_ancestors(kernel, block)):
        if isinstance(stmt, For):
            return block[: 2 * i + 1]
    raise ValueError("no loop around the block")
