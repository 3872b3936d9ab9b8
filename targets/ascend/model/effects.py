"""What a piece of a kernel depends on and what it leaves behind, found without running it.

``Effect.roots`` determine all that the statements do to the pipes; ``Effect.out`` says, for each outer variable that
they assign, its value afterwards: an expression over the values before, or the roots that determine it. Everything is
in terms of the variables at the entry of the piece, so that equal root values before mean equal work and equal values
after.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moec.codegen.kernel_ir import (
    Assign,
    CrossCoreSet,
    CrossCoreWait,
    For,
    If,
    Instr,
    Let,
    LoadScalar,
    SetFlag,
    Stmt,
    WaitFlag,
)
from moec.codegen.scalar import Scalar, Var, choose
from moec.targets.ascend.model.terms import (
    SIZE_LIMIT,
    Root,
    decompose,
    exact,
    load_of,
    modulo,
    size,
    substitute,
    unique,
    variables,
)  # fmt: skip

Opaque = tuple[Root, ...]
"""A value known only by what determines it."""


@dataclass(frozen=True)
class Effect:
    """Roots of a piece, and the outer variables it assigns: an expression or an ``Opaque``."""

    roots: tuple[Root, ...]
    out: dict[str, Scalar | Opaque]

    def key(self) -> tuple[Root, ...]:
        """Roots that determine both the work and the values assigned."""
        more: list[Root] = []
        for value in self.out.values():
            more += value if isinstance(value, tuple) else exact(value)
        return unique((*self.roots, *more))


class Analysis:
    """Effects of the statements of one kernel. ``instruction_roots`` gives the roots of one instruction's cost;
    ``relevant`` are the variables that any cost, condition or bound can depend on; the others are left out."""

    def __init__(self, instruction_roots: dict[Instr, tuple[Root, ...]], relevant: frozenset[str]):
        self.instruction_roots = instruction_roots
        self.relevant = relevant

    def block(self, stmts: Sequence[Stmt], keep: bool = False) -> Effect:
        """The effect of ``stmts`` in order; variables declared inside show only if they are to be kept."""
        roots: list[Root] = []
        now: dict[str, Scalar | Opaque] = {}
        declared: set[str] = set()
        for stmt in stmts:
            if isinstance(stmt, (Let, Assign, LoadScalar)):
                if isinstance(stmt, (Let, LoadScalar)):
                    declared.add(stmt.var.name)
                if stmt.var.name in self.relevant:
                    value = load_of(stmt.ref) if isinstance(stmt, LoadScalar) else stmt.value
                    now[stmt.var.name] = self._value(value, now)
                continue
            effect = self._statement(stmt)
            roots += self._translate(effect.roots, now)
            changed = {
                name: tuple(self._translate(value, now)) if isinstance(value, tuple) else self._value(value, now)
                for name, value in effect.out.items()
            }
            now.update(changed)
        return Effect(unique(roots), {name: value for name, value in now.items() if keep or name not in declared})

    def _statement(self, stmt: Stmt) -> Effect:
        if isinstance(stmt, Instr):
            return Effect(self.instruction_roots[stmt], {})
        if isinstance(stmt, (SetFlag, WaitFlag, CrossCoreSet, CrossCoreWait)):
            return Effect(tuple(exact(stmt.id)), {})
        if isinstance(stmt, For):
            return self.loop(stmt)
        if isinstance(stmt, If):
            return self._branch(stmt)
        return Effect((), {})

    def loop(self, stmt: For) -> Effect:
        """The effect of all iterations of a loop, in terms of the values before the first."""
        body = self.block(stmt.body)
        volatile = frozenset(body.out) | {stmt.var}
        bounds = [r for part in (stmt.start, stmt.stop, stmt.step) for r in exact(part)]
        roots = [*bounds, *self._settle(body.roots, body, volatile, stmt.var)]
        out: dict[str, Scalar | Opaque] = {}
        for name in body.out:
            out[name] = unique((*bounds, *self._settle((Root(Var(name)),), body, volatile, stmt.var)))
        return Effect(unique(roots), out)

    def _settle(self, start: Iterable[Root], body: Effect, volatile: frozenset[str], loop_var: str) -> list[Root]:
        """Roots before the loop that determine ``start`` in every iteration."""
        done: dict[Root, None] = {}
        todo = list(start)
        seen: set[Root] = set()
        while todo:
            root = todo.pop()
            if root in seen:
                continue
            seen.add(root)
            for part in decompose(root, volatile):
                name = part.expr.name if isinstance(part.expr, Var) else ""
                if name == loop_var:
                    continue
                if name not in body.out:
                    done[part] = None
                else:
                    done[Root(Var(name))] = None
                    after = body.out[name]
                    if isinstance(after, tuple):
                        todo += after
                    else:
                        todo += exact(after)
        return list(done)

    def _branch(self, stmt: If) -> Effect:
        then, other = self.block(stmt.then), self.block(stmt.orelse)
        roots = unique((*exact(stmt.cond), *then.roots, *other.roots))
        out: dict[str, Scalar | Opaque] = {}
        for name in dict.fromkeys((*then.out, *other.out)):
            a, b = then.out.get(name, Var(name)), other.out.get(name, Var(name))
            if isinstance(a, tuple) or isinstance(b, tuple):
                parts = [*exact(stmt.cond)]
                for value in (a, b):
                    parts += value if isinstance(value, tuple) else exact(value)
                out[name] = unique(parts)
            else:
                out[name] = choose(stmt.cond, a, b)
        return Effect(roots, out)

    def _value(self, value: Scalar, now: dict[str, Scalar | Opaque]) -> Scalar | Opaque:
        """``value`` over the entry's variables, or what determines it."""
        names = variables(value)
        if any(isinstance(now.get(name), tuple) for name in names):
            return unique(self._translate(exact(value), now))
        whole = substitute(value, {n: v for n, v in now.items() if n in names and not isinstance(v, tuple)})
        return whole if size(whole) <= SIZE_LIMIT else unique(exact(whole))

    def _translate(self, roots: Iterable[Root], now: dict[str, Scalar | Opaque]) -> list[Root]:
        """Roots inside a block as roots at its entry."""
        out: list[Root] = []
        opaque = {name: value for name, value in now.items() if isinstance(value, tuple)}
        known = {name: value for name, value in now.items() if not isinstance(value, tuple)}
        for root in roots:
            for part in decompose(root, frozenset(opaque)):
                name = part.expr.name if isinstance(part.expr, Var) else ""
                if name in opaque:
                    out += opaque[name]
                    continue
                expr = substitute(part.expr, known)
                if part.modulus:
                    reduced = modulo(expr, part.modulus)
                    out += [reduced] if reduced is not None else []
                else:
                    out += exact(expr)
        return out
