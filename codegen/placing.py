"""Flags and barriers put into a kernel's statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from moec.codegen.depend import Sync, innermost_loop, outermost_loop
from moec.codegen.interpret import Path
from moec.codegen.kernel_ir import Barrier, For, If, Kernel, SetFlag, Stmt, WaitFlag
from moec.codegen.scalar import Scalar, binary


def insert(kernel: Kernel, syncs: Sequence[Sync], bases: Sequence[int]) -> tuple[Kernel, dict[Path, int]]:
    """The kernel with ``syncs`` in place, and which of them each new statement (by its new path) belongs to."""
    before: dict[Path, list[tuple[Stmt, int]]] = {}
    after: dict[Path, list[tuple[Stmt, int]]] = {}
    for i, (s, base) in enumerate(zip(syncs, bases, strict=True)):
        here = (*s.block, s.before)
        if s.is_barrier:
            stmt: Stmt = Barrier(s.src)
            before.setdefault(here, []).append((stmt if s.when is None else If(s.when, (stmt,)), i))
            continue
        event: Scalar = base if s.slots == 1 else binary("+", s.slot, base)
        before.setdefault(here, []).append((WaitFlag(s.src, s.dst, event), i))
        after.setdefault((*s.block, s.after), []).append((SetFlag(s.src, s.dst, event), i))
        if s.carried:
            loop = (innermost_loop if s.near else outermost_loop)(kernel, s.block)
            for slot in range(s.slots):
                before.setdefault(loop, []).append((SetFlag(s.src, s.dst, base + slot), i))
                after.setdefault(loop, []).append((WaitFlag(s.src, s.dst, base + slot), i))
    tags: dict[Path, int] = {}
    body = rebuild(kernel.body, (), (), before, after, tags)
    return replace(kernel, body=body), tags


RANK = {"wait": 0, "barrier": 1, "set": 2}
"""The order of flags and barriers before one statement; behind one it is the other way round."""
_RANK = {WaitFlag: RANK["wait"], Barrier: RANK["barrier"], If: RANK["barrier"], SetFlag: RANK["set"]}


def rebuild(
    block: Sequence[Stmt],
    old: Path,
    new: Path,
    before: dict[Path, list[tuple[Stmt, int]]],
    after: dict[Path, list[tuple[Stmt, int]]],
    tags: dict[Path, int],
) -> tuple[Stmt, ...]:
    """``block``, at path ``old``, with what comes before and after its statements; ``tags`` gets the new paths."""
    out: list[Stmt] = []

    def add(extra: list[tuple[Stmt, int]], sets_first: bool) -> None:
        for stmt, i in sorted(extra, key=lambda e: -_RANK[type(e[0])] if sets_first else _RANK[type(e[0])]):
            path = (*new, len(out))
            tags[path] = i
            if isinstance(stmt, If):
                tags[(*path, 0, 0)] = i
            out.append(stmt)

    for i, stmt in enumerate(block):
        here = (*old, i)
        add(before.get(here, []), sets_first=False)
        path = (*new, len(out))
        if isinstance(stmt, For):
            body = rebuild(stmt.body, (*here, 0), (*path, 0), before, after, tags)
            out.append(replace(stmt, body=body))
        elif isinstance(stmt, If):
            then = rebuild(stmt.then, (*here, 0), (*path, 0), before, after, tags)
            out.append(
                replace(stmt, then=then, orelse=rebuild(stmt.orelse, (*here, 1), (*path, 1), before, after, tags))
            )
        else:
            out.append(stmt)
        add(after.get(here, []), sets_first=True)
    return tuple(out)
