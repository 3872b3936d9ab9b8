"""Removes from a kernel what is known when it is built: constant variables, loops of one round, decided branches.

Numbers do not change; the emitted source reads as one would write it for these sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.kernel_ir import (
    Assign,
    CrossCoreSet,
    CrossCoreWait,
    For,
    GmRef,
    If,
    Instr,
    Kernel,
    Let,
    LoadScalar,
    ParamValue,
    Ref,
    SetFlag,
    Stmt,
    StoreScalar,
    WaitFlag,
)
from moec.codegen.scalar import Bin, Choose, Expr, Number, Scalar, Var, binary, choose, names_in

Known = Mapping[str, Number]


def substitute(s: Scalar, known: Known) -> Scalar:
    """``s`` with known variables as numbers, folded."""
    if isinstance(s, Var):
        return known.get(s.name, s)
    if isinstance(s, Bin):
        return binary(s.op, substitute(s.a, known), substitute(s.b, known))
    if isinstance(s, Choose):
        return choose(substitute(s.cond, known), substitute(s.a, known), substitute(s.b, known))
    return s


def simplify(kernel: Kernel) -> Kernel:
    """The kernel without what its constants decide."""
    assigned = _assigned(kernel.body)
    body = _block(kernel.body, {}, assigned)
    used = _used(body)
    while True:
        body = _drop(body, used | assigned)
        now = _used(body)
        if now == used:
            return replace(kernel, body=body)
        used = now


def _assigned(block: Sequence[Stmt]) -> frozenset[str]:
    out: set[str] = set()
    for s in block:
        if isinstance(s, Assign):
            out.add(s.var.name)
        for inner in _inner(s):
            out |= _assigned(inner)
    return frozenset(out)


def _inner(s: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    return (s.body,) if isinstance(s, For) else (s.then, s.orelse) if isinstance(s, If) else ()


def _block(block: Sequence[Stmt], known: dict[str, Number], assigned: frozenset[str]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in block:
        if isinstance(s, Let):
            value = substitute(s.value, known)
            if not isinstance(value, Expr) and s.var.name not in assigned:
                known[s.var.name] = value
            else:
                out.append(Let(s.var, value))
        elif isinstance(s, For):
            out += _loop(s, known, assigned)
        elif isinstance(s, If):
            cond = substitute(s.cond, known)
            if isinstance(cond, Expr):
                then, orelse = _block(s.then, known, assigned), _block(s.orelse, known, assigned)
                out.append(If(cond, then, orelse))
            else:
                out += _block(s.then if cond else s.orelse, known, assigned)
        else:
            out.append(_statement(s, known))
    return tuple(out)


def _loop(s: For, known: dict[str, Number], assigned: frozenset[str]) -> tuple[Stmt, ...]:
    start, stop, step = (substitute(x, known) for x in (s.start, s.stop, s.step))
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        trips = len(range(start, stop, step))
        if trips == 0:
            return ()
        if trips == 1:
            known[s.var] = start
            return _block(s.body, known, assigned)
    return (For(s.var, start, stop, step, _block(s.body, known, assigned)),)


def _ref(r: Ref, known: Known) -> Ref:
    offset = substitute(r.offset, known)
    if isinstance(r, GmRef):
        return replace(r, offset=offset)
    return replace(r, offset=offset, slot=substitute(r.slot, known))


def _statement(s: Stmt, known: Known) -> Stmt:
    if isinstance(s, Instr):
        return Instr(
            s.op, tuple(_ref(r, known) for r in s.operands), tuple((n, _param(s.op, n, p, known)) for n, p in s.params)
        )
    if isinstance(s, Assign):
        return Assign(s.var, substitute(s.value, known))
    if isinstance(s, LoadScalar):
        return LoadScalar(s.var, _ref(s.ref, known))
    if isinstance(s, StoreScalar):
        return StoreScalar(_ref(s.ref, known), substitute(s.value, known))
    if isinstance(s, SetFlag | WaitFlag | CrossCoreSet | CrossCoreWait):
        return replace(s, id=substitute(s.id, known))
    return s


def _param(op: str, name: str, p: ParamValue, known: Known) -> ParamValue:
    if not isinstance(p, Expr):
        return p
    value = substitute(p, known)
    kind = next(q.kind for q in INSTRUCTIONS[op].params if q.name == name)
    return bool(value) if kind == "bool" and not isinstance(value, Expr) else value


def _used(block: Sequence[Stmt]) -> frozenset[str]:
    """Variables that some statement reads."""
    out: set[str] = set()
    for s in block:
        for scalar in _scalars(s):
            out |= names_in(scalar)
        for inner in _inner(s):
            out |= _used(inner)
    return frozenset(out)


def _scalars(s: Stmt) -> list[Scalar]:
    if isinstance(s, Instr):
        found: list[Scalar] = [p for _, p in s.params if not isinstance(p, str)]
        for r in s.operands:
            found += [r.offset, getattr(r, "slot", 0)]
        return found
    if isinstance(s, For):
        return [s.start, s.stop, s.step]
    if isinstance(s, If):
        return [s.cond]
    if isinstance(s, Let | Assign):
        return [s.value]
    if isinstance(s, LoadScalar):
        return [s.ref.offset, getattr(s.ref, "slot", 0)]
    if isinstance(s, StoreScalar):
        return [s.value, s.ref.offset, getattr(s.ref, "slot", 0)]
    if isinstance(s, SetFlag | WaitFlag | CrossCoreSet | CrossCoreWait):
        return [s.id]
    return []


def _drop(block: Sequence[Stmt], kept: frozenset[str]) -> tuple[Stmt, ...]:
    """The block without declarations that nobody reads."""
    out: list[Stmt] = []
    for s in block:
        if isinstance(s, Let) and s.var.name not in kept:
            continue
        if isinstance(s, For):
            out.append(replace(s, body=_drop(s.body, kept)))
        elif isinstance(s, If):
            out.append(replace(s, then=_drop(s.then, kept), orelse=_drop(s.orelse, kept)))
        else:
            out.append(s)
    return tuple(out)
