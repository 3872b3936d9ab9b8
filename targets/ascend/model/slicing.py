"""The part of some statements that decides given scalars and how often they come up, and what a piece hands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moec.codegen.kernel_ir import Assign, For, If, Let, LoadScalar, Stmt
from moec.codegen.scalar import Bin, Scalar
from moec.targets.ascend.model.terms import load_of, variables, without

Block = tuple[Stmt, ...]
Roots = Callable[[Stmt], tuple[Scalar, ...] | None]
"""The scalars of a statement that are to be known where it is run; None of any other statement."""


def value_of(stmt: Let | Assign | LoadScalar) -> Scalar:
    """What the variable of ``stmt`` gets."""
    return load_of(stmt.ref) if isinstance(stmt, LoadScalar) else stmt.value


def control_of(stmt: For | If) -> tuple[Scalar, ...]:
    """What decides how often the blocks of ``stmt`` run."""
    return (stmt.start, stmt.stop, stmt.step) if isinstance(stmt, For) else (stmt.cond,)


def blocks_of(stmt: For | If) -> tuple[Block, ...]:
    """The blocks of ``stmt``."""
    return (stmt.body,) if isinstance(stmt, For) else (stmt.then, stmt.orelse)


def sliced(stmts: Sequence[Stmt], roots: Roots) -> tuple[Block, frozenset[str]]:
    """The statements that decide the ``roots`` and how often they are run, with them, and the variables they read."""
    needed: set[str] = set()
    before = -1
    while before != len(needed):
        before = len(needed)
        _reach(stmts, roots, needed)
    return _kept(stmts, roots, needed), frozenset(needed)


def _reach(stmts: Sequence[Stmt], roots: Roots, needed: set[str]) -> bool:
    kept = False
    for stmt in stmts:
        scalars = roots(stmt)
        if scalars is None and isinstance(stmt, (Let, Assign, LoadScalar)) and stmt.var.name in needed:
            scalars = (value_of(stmt),)
        if isinstance(stmt, (For, If)) and _any(stmt, roots, needed):
            scalars = control_of(stmt)
        if scalars is not None:
            kept = True
            needed.update(*(variables(s) for s in scalars))
    return kept


def _any(stmt: For | If, roots: Roots, needed: set[str]) -> bool:
    """Whether a root stands in a block of ``stmt``; every block is looked at."""
    return sum(_reach(block, roots, needed) for block in blocks_of(stmt)) > 0


def _kept(stmts: Sequence[Stmt], roots: Roots, needed: set[str]) -> Block:
    out: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, (For, If)):
            blocks = [_kept(block, roots, needed) for block in blocks_of(stmt)]
            if any(blocks):
                if isinstance(stmt, For):
                    out.append(For(stmt.var, stmt.start, stmt.stop, stmt.step, blocks[0]))
                else:
                    out.append(If(stmt.cond, blocks[0], blocks[1]))
        elif roots(stmt) is not None or (isinstance(stmt, (Let, Assign, LoadScalar)) and stmt.var.name in needed):
            out.append(stmt)
    return tuple(out)


@dataclass(frozen=True)
class Sum:
    """A variable that a piece only ever adds to: what each statement that does adds, and the modulus (0: none)."""

    added: Mapping[Assign, Scalar]
    modulus: int


@dataclass(frozen=True)
class Handed:
    """What a piece reads or writes (``used``), and what it hands on to the next time it is run: ``sums`` with the
    statements that decide how much is added (``gains``), and all other variables declared outside that it assigns."""

    used: frozenset[str]
    sums: Mapping[str, Sum]
    gains: Block
    others: frozenset[str]

    @property
    def assigned(self) -> list[str]:
        """Every variable handed on."""
        return sorted((*self.sums, *self.others))


def handed_on(block: Block, roots: Roots) -> Handed:
    """What ``block``, whose roots these are, hands on."""
    used: set[str] = set()
    declared: set[str] = set()
    assigns: dict[str, list[Assign]] = {}
    _collect(block, roots, used, declared, assigns)
    outer = {name: found for name, found in assigns.items() if name not in declared}
    sums = {name: s for name, found in outer.items() if (s := _sum(name, found)) is not None}
    added = {stmt: scalar for s in sums.values() for stmt, scalar in s.added.items()}
    gains, needed = sliced(block, lambda stmt: (added[stmt],) if isinstance(stmt, Assign) and stmt in added else None)
    if needed & set(outer):
        sums, gains = {}, ()
    return Handed(frozenset(used), sums, gains, frozenset(outer) - frozenset(sums))


def _collect(block: Block, roots: Roots, used: set[str], declared: set[str], assigns: dict[str, list[Assign]]) -> None:
    for stmt in block:
        if isinstance(stmt, (Let, Assign, LoadScalar)):
            used |= variables(value_of(stmt)) | {stmt.var.name}
            if isinstance(stmt, Assign):
                assigns.setdefault(stmt.var.name, []).append(stmt)
            else:
                declared.add(stmt.var.name)
        elif isinstance(stmt, (For, If)):
            used.update(*(variables(s) for s in control_of(stmt)))
            for inner in blocks_of(stmt):
                _collect(inner, roots, used, declared, assigns)
        else:
            used.update(*(variables(s) for s in roots(stmt) or ()))


def _sum(name: str, assigns: Sequence[Assign]) -> Sum | None:
    """The sum that the variable ``name`` is; None if it is none."""
    added: dict[Assign, Scalar] = {}
    moduli: set[int] = set()
    for stmt in assigns:
        value, modulus = stmt.value, 0
        if isinstance(value, Bin) and value.op == "%" and isinstance(value.b, int):
            modulus, value = value.b, value.a
        rest = without(value, name)
        if rest is None:
            return None
        added[stmt] = rest
        moduli.add(modulus)
    return Sum(added, moduli.pop()) if len(moduli) == 1 else None
