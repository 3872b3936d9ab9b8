"""Faults put into kernels one at a time: each flag, barrier, padding and buffer bound left out; the static verdicts.

The happens-before check judges what the witnesses run without the flag or barrier (without SyncAll also the check of
races between cores); a bound is caught if a witness uses what is cut off. What a padding delivers is a matter of
values, which no static check follows. How faults show in a run: see injection_run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from ascend_run import TEMPLATES

from moec.codegen.emit import emit_kernel
from moec.codegen.hazards import is_site
from moec.codegen.interpret import Interpreter, Path, seats, value
from moec.codegen.kernel_ir import (
    ITEMSIZE,
    Barrier,
    CrossCoreSet,
    CrossCoreWait,
    For,
    GmRef,
    If,
    Instr,
    Kernel,
    LoadScalar,
    SetFlag,
    Stmt,
    StoreScalar,
    SyncAll,
    WaitFlag,
    Witness,
)
from moec.codegen.ordered import Code, coded, ordered
from moec.codegen.project import environment
from moec.codegen.races import check_races
from moec.codegen.traces import SAMPLE, cores_of, program_of

KINDS = ("set", "wait", "event", "barrier", "cross set", "cross wait", "all cores", "pad", "bound")
"""``event``: all statements of one event of a pipe pair at once, so that only the missing order can be noticed.
``cross set`` and ``cross wait`` are between cube and vector cores, ``all cores`` is SyncAll."""
CUT = 32
"""Bytes that a bound is short of."""


@dataclass
class Site:
    """One fault: what the CPU model is to leave out, and who noticed. ``static`` is None where no check is meant to."""

    kernel: str
    kind: str
    text: str
    mask: str
    static: bool | None = None
    dynamic: str = ""

    @property
    def is_room(self) -> bool:
        """Whether it is no fault: the bytes that a bound is short of are used by no witness and no run."""
        return self.kind == "bound" and not self.static and not self.dynamic


def sites_of(kernel: Kernel, fast: bool = False) -> list[Site]:
    """Every fault of ``kernel`` with the verdict of the static checks (left out if ``fast``)."""
    source = emit_kernel(kernel, environment(TEMPLATES))
    flags = list(flags_in(kernel.body, ()))
    emitted = [s for s in source.sites if s.kind not in ("pad", "bound")]
    assert len(flags) == len(emitted), kernel.name
    file = f"kernels/{kernel.name}.cpp"
    masks = {path: f"{e.kind}@{file}:{e.line}" for (path, _), e in zip(flags, emitted, strict=True)}
    out = [Site(kernel.name, _kind(s), e.text, masks[p]) for (p, s), e in zip(flags, emitted, strict=True)]
    groups = [[path] for path, _ in flags]
    for name, paths in _events(kernel).items():
        out.append(Site(kernel.name, "event", name, ",".join(masks[p] for p in paths)))
        groups.append(paths)
    if not fast:
        for site, caught in zip(out, _unordered_without(kernel, groups), strict=True):
            site.static = caught
        for site, (path, _) in zip(out, flags, strict=False):
            if site.kind == "all cores" and not site.static:
                site.static = check_races(replace(kernel, body=without(kernel.body, path))) != []
    bounds = [s for s in source.sites if s.kind == "bound"]
    verdicts = [None] * len(bounds) if fast else reached(kernel, kernel.witnesses)
    for s, caught in zip(bounds, verdicts, strict=True):
        out.append(Site(kernel.name, "bound", s.text, f"bound@{file}:{s.line}", caught))
    out += [Site(kernel.name, "pad", s.text, f"pad@{file}:{s.line}") for s in source.sites if s.kind == "pad"]
    return out


def _kind(s: Stmt) -> str:
    names = {SetFlag: "set", WaitFlag: "wait", Barrier: "barrier", SyncAll: "all cores"}
    names |= {CrossCoreSet: "cross set", CrossCoreWait: "cross wait"}
    return names[type(s)]


def flags_in(block: Sequence[Stmt], at: Path) -> Iterator[tuple[Path, Stmt]]:
    """Synchronisation statements with their paths, in the order in which they are printed."""
    for i, s in enumerate(block):
        path = (*at, i)
        if is_site(s):
            yield path, s
        elif isinstance(s, For):
            yield from flags_in(s.body, (*path, 0))
        elif isinstance(s, If):
            yield from flags_in(s.then, (*path, 0))
            yield from flags_in(s.orelse, (*path, 1))


def without(block: tuple[Stmt, ...], path: Path) -> tuple[Stmt, ...]:
    """``block`` without the statement at ``path``."""
    i, rest = path[0], path[1:]
    if not rest:
        return block[:i] + block[i + 1 :]
    s = block[i]
    assert isinstance(s, For | If)
    if isinstance(s, For):
        return (*block[:i], replace(s, body=without(s.body, rest[1:])), *block[i + 1 :])
    side = "orelse" if rest[0] else "then"
    return (*block[:i], replace(s, **{side: without(getattr(s, side), rest[1:])}), *block[i + 1 :])


def _events(kernel: Kernel) -> dict[str, list[Path]]:
    """Paths of the flags of each event: those that have an id of a pipe pair in common on a witness."""
    ids: dict[tuple[int, int, int], set[Path]] = {}
    for witness in kernel.witnesses:
        for core in cores_of(witness):
            for step in program_of(kernel, witness, core):
                if step.kind in ("set", "wait"):
                    ids.setdefault(step.channel, set()).add(step.path)
    joined: list[tuple[set[Path], list[tuple[int, int, int]]]] = []
    for channel, paths in sorted(ids.items()):
        same = [j for j in joined if j[0] & paths]
        for j in same:
            paths = paths | j[0]
        joined = [j for j in joined if j not in same]
        joined.append((paths, [channel, *(c for j in same for c in j[1])]))
    found = {}
    for paths, channels in joined:
        first = min(paths)
        stmt = at(kernel.body, first)
        assert isinstance(stmt, SetFlag | WaitFlag)
        name = f"{stmt.src}_{stmt.dst} {sorted({c[2] for c in channels})}"
        found[f"{name} of {len(paths)} statements from {first}"] = sorted(paths)
    return found


def at(block: Sequence[Stmt], path: Path) -> Stmt:
    """The statement at ``path``."""
    s = block[path[0]]
    if len(path) == 1:
        return s
    assert isinstance(s, For | If)
    inner = s.body if isinstance(s, For) else (s.then, s.orelse)[path[1]]
    return at(inner, path[2:])


def _unordered_without(kernel: Kernel, groups: Sequence[Sequence[Path]]) -> list[bool]:
    """Whether some witness is unordered, or its flags do not match, without the statements of each group."""
    programs: list[tuple[list[Code], int, list[Path]]] = []
    for witness in kernel.witnesses:
        for core in cores_of(witness):
            steps = program_of(kernel, witness, core)
            codes, pipes = coded([replace(s, tag=i) for i, s in enumerate(steps)])
            assert ordered(codes, pipes), f"{kernel.name} is unordered as it is"
            programs.append((codes, pipes, [s.path for s in steps]))
    out = []
    for group in groups:
        gone = set(group)
        out.append(
            any(
                not ordered([c for c in codes if paths[c[-1]] not in gone], pipes)
                for codes, pipes, paths in programs
                if gone & set(paths)
            )
        )
    return out


def reached(kernel: Kernel, witnesses: Sequence[Witness]) -> list[bool]:
    """For each bound, in the order of their lines, whether one of ``witnesses`` uses what is cut off."""
    most: dict[tuple[str, int], int] = {}  # bytes used of a slot of a buffer
    full: set[str] = set()  # device tensors used up to their last element
    for witness in witnesses:
        for core, seat in product(cores_of(witness), seats(kernel)):
            walk = Interpreter(kernel, witness, core, SAMPLE, seat)
            sizes = {p.name: prod(int(value(d, walk.env)) for d in p.shape) * ITEMSIZE[p.dtype] for p in kernel.params}
            for event in walk.run():
                stmt = event.stmt
                refs = stmt.operands if isinstance(stmt, Instr) else ()
                refs = (stmt.ref,) if isinstance(stmt, LoadScalar | StoreScalar) else refs
                for ref in refs:
                    name = f"GM:{ref.tensor}" if isinstance(ref, GmRef) else walk.buffers[ref.buffer].space
                    start = walk.start_of(ref)
                    ends = [a.hi for a in event.accesses if a.space == name and a.lo == start]
                    if isinstance(ref, GmRef):
                        if any(end > sizes[ref.tensor] - ITEMSIZE[ref.dtype] for end in ends):
                            full.add(ref.tensor)
                    else:
                        b, slot = walk.buffers[ref.buffer], int(value(ref.slot, walk.env))
                        low = b.offset + slot * b.slot_bytes
                        key = (b.name, slot)
                        most[key] = max([most.get(key, 0), *(end - low for end in ends)])

    def caught(bound: tuple[str, int]) -> bool:
        name, slot = bound
        if slot == TENSOR:
            return name in full
        if slot == MEMORY:
            mine = [b for b in kernel.buffers if b.space == name]
            top = max(b.offset + b.bytes for b in mine)
            used = ((b, i, most.get((b.name, i), 0)) for b in mine for i in range(b.slots))
            return any(size and b.offset + i * b.slot_bytes + size > top - CUT for b, i, size in used)
        b = kernel.buffer(name)
        return most.get(bound, 0) > max(0, b.elems * ITEMSIZE[b.dtype] - CUT)

    return [caught(bound) for bound in _bounds(kernel)]


TENSOR, MEMORY = -1, -2


def _bounds(kernel: Kernel) -> Iterator[tuple[str, int]]:
    """What each bound is of, in the order in which they are printed: a device tensor, a memory, a buffer and its
    slot."""
    yield from ((p.name, TENSOR) for p in kernel.params)
    for side in ("aic", "aiv") if kernel.core == "mix" else (kernel.core,):
        for space in sorted({b.space for b in kernel.buffers if (b.space == "UB") == (side == "aiv")}):
            yield space, MEMORY
            yield from ((b.name, slot) for b in kernel.buffers if b.space == space for slot in range(b.slots))
