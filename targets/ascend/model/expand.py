"""Runs the statements that decide where chosen instructions go, for all cores and all iterations of a loop at once.

A piece is run for many *elements*, one for each core and iteration of the loops around it; variables are arrays over
them. What iterations hand on as a sum is summed up before; a loop that hands on anything else is run iteration by
iteration, for all elements together. As long as no core has more than one element, how far each core has come is known,
and a core that has found as much as is wanted of it is dropped: loops are then taken in runs of iterations that grow by
what was found before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moec.codegen.kernel_ir import Assign, For, If, Instr, Let, LoadScalar, Stmt
from moec.codegen.scalar import Expr, Scalar, Var
from moec.targets.ascend.model.program import walk
from moec.targets.ascend.model.slicing import Block, Handed, control_of, handed_on, sliced, value_of
from moec.targets.ascend.model.source import ARRAYS, Load, function_of, source
from moec.targets.ascend.model.terms import CORE_NAMES

Ints = NDArray[np.int64]
Values = dict[str, Any]
"""An array over the elements, or one number for all of them, by variable."""
GROWTH = 4
"""A run of iterations is at most as many times longer than the one before."""
MOST_ELEMENTS = 1_000_000
"""Elements of one run of iterations, at most."""


@dataclass(frozen=True)
class _Found:
    """Executions of an instruction: their elements, their places in the order of their element, their scalars."""

    number: int
    element: Ints
    place: Ints
    values: tuple[Any, ...]


class Expansion:
    """The executions of the instructions ``wanted`` (with the scalars to work out at each) in ``body`` on cores with
    these ``facts`` (arrays by name), of each core the first ``limit``. ``tables``: device data by name."""

    def __init__(
        self, body: Sequence[Stmt], wanted: Mapping[Instr, tuple[Scalar, ...]], facts: Mapping[str, Ints],
        tables: Mapping[str, Sequence[int]], limit: int,
    ):  # fmt: skip
        self.wanted, self.limit = wanted, limit
        self.tables = {name: np.asarray(table) for name, table in tables.items()}
        self.code: dict[tuple[int, int], Callable[[Values], tuple[Any, ...]]] = {}
        self.handed: dict[int, Handed] = {}
        self.body, _ = sliced(body, self._roots)
        number = {stmt: i for i, stmt in enumerate(wanted)}
        self.chosen = {id(s): (number[s], wanted[s]) for s in walk(self.body) if isinstance(s, Instr)}
        cores = len(next(iter(facts.values())))
        start: Values = {CORE_NAMES[which]: values for which, values in facts.items()}
        self.done, _ = self._block(self.body, start, cores, np.zeros(cores, np.int64))

    def found(self) -> Iterator[tuple[int, Ints, Ints, tuple[Any, ...]]]:
        """Executions: index into ``wanted``; cores, places in the order of each core, scalars."""
        for f in self.done:
            some = f.place < self.limit
            yield f.number, f.element[some], f.place[some], tuple(_at(v, some) for v in f.values)

    def _roots(self, stmt: Stmt) -> tuple[Scalar, ...] | None:
        return self.wanted.get(stmt) if isinstance(stmt, Instr) else None

    def _handed(self, block: Block) -> Handed:
        found = self.handed.get(id(block))
        if found is None:
            found = self.handed[id(block)] = handed_on(block, self._roots)
        return found

    # -- pieces

    def _block(self, stmts: Block, env: Values, size: int, come: Ints | None) -> tuple[list[_Found], Ints]:
        """Runs ``stmts`` for ``size`` elements, changing ``env``: what is found, and how much of each element.
        ``come``: how far each element's core has come, where no core has more than one (else None); elements that are
        far enough may then be left unfinished."""
        found: list[_Found] = []
        count = np.zeros(size, np.int64)
        for stmt in stmts:
            if isinstance(stmt, (Let, Assign, LoadScalar)):
                env[stmt.var.name] = self._evaluate(stmt, (value_of(stmt),), env)[0]
            elif isinstance(stmt, Instr):
                number, scalars = self.chosen[id(stmt)]
                values = self._evaluate(stmt, scalars, env)
                found.append(_Found(number, np.arange(size), count.copy(), values))
                count += 1
            elif isinstance(stmt, If):
                cond = self._condition(stmt, env, size)
                for block, chosen in ((stmt.then, np.flatnonzero(cond)), (stmt.orelse, np.flatnonzero(~cond))):
                    if block and len(chosen):
                        self._some(block, env, chosen, {}, come, count, found)
            elif isinstance(stmt, For):
                self._loop(stmt, env, come, count, found)
        return found, count

    def _some(
        self, block: Block, env: Values, chosen: Ints, more: Values, come: Ints | None, count: Ints,
        found: list[_Found],
    ) -> None:  # fmt: skip
        """Runs ``block`` for the ``chosen`` elements, with the variables ``more`` besides; adds to count and found."""
        handed, size = self._handed(block), len(count)
        whole = len(chosen) == size
        inner = {n: v if whole else _at(v, chosen) for n, v in env.items() if n in handed.used} | more
        some, counts = self._block(block, inner, len(chosen), None if come is None else (come + count)[chosen])
        for f in some:
            found.append(_Found(f.number, chosen[f.element], count[chosen][f.element] + f.place, f.values))
        count[chosen] += counts
        for name in handed.assigned:
            if whole:
                env[name] = inner[name]
            else:
                after = np.array(np.broadcast_to(np.asarray(env[name]), (size,)))
                after = after.astype(np.result_type(after, np.asarray(inner[name])))
                after[chosen] = inner[name]
                env[name] = after

    def _loop(self, stmt: For, env: Values, come: Ints | None, count: Ints, found: list[_Found]) -> None:
        size = len(count)
        start, step, trips = self._trips(stmt, env, size)
        alone = bool(self._handed(stmt.body).others)
        if come is None and not alone:
            self._expand(stmt, env, start, step, np.zeros(size, np.int64), trips, count, found)
            return
        at, run, before = 0, 1, count.copy()
        while at < trips.max(initial=0):
            wanted = trips > at if come is None else (trips > at) & (come + count < self.limit)
            chosen = np.flatnonzero(wanted)
            if not len(chosen):
                return
            if run == 1:
                self._some(stmt.body, env, chosen, {stmt.var: (start + at * step)[chosen]}, come, count, found)
            else:
                stops = np.where(wanted, np.minimum(trips, at + run), at)
                self._expand(stmt, env, start, step, np.minimum(at, stops), stops, count, found)
            at += run
            if come is not None and not alone:
                left = int((self.limit - come - count)[chosen].max(initial=0))
                each = max(1, int((count - before)[chosen].max(initial=0)) // at)
                run = max(1, min(GROWTH * run, left // each + 1, MOST_ELEMENTS // len(chosen)))

    def _expand(
        self, stmt: For, env: Values, start: Ints, step: Ints, first: Ints, stop: Ints, count: Ints,
        found: list[_Found],
    ) -> None:  # fmt: skip
        """Runs iterations ``first`` to ``stop`` of each element as elements of their own."""
        spread = _Spread(first, stop)
        if not len(spread.of):
            return
        handed = self._handed(stmt.body)
        inner = {n: _at(v, spread.of) for n, v in env.items() if n in handed.used}
        inner[stmt.var] = start[spread.of] + spread.number * step[spread.of]
        if handed.sums:
            gains = self._gains(handed.gains, handed, dict(inner), len(spread.of))
            for name, s in handed.sums.items():
                inner[name] = _modulo(inner[name] + spread.before(gains[name]), s.modulus)
                env[name] = _modulo(env[name] + spread.total(gains[name]), s.modulus)
        some, counts = self._block(stmt.body, inner, len(spread.of), None)
        place = spread.before(counts) + count[spread.of]
        for f in some:
            found.append(_Found(f.number, spread.of[f.element], place[f.element] + f.place, f.values))
        count += spread.total(counts)

    def _gains(self, stmts: Block, handed: Handed, env: Values, size: int) -> dict[str, Ints]:
        """What ``stmts`` add to each of the sums, by element; changes ``env``."""
        gains = {name: np.zeros(size, np.int64) for name in handed.sums}
        for stmt in stmts:
            if isinstance(stmt, Assign) and stmt.var.name in gains:
                gains[stmt.var.name] += self._evaluate(stmt, (handed.sums[stmt.var.name].added[stmt],), env, 1)[0]
            elif isinstance(stmt, (Let, Assign, LoadScalar)):
                env[stmt.var.name] = self._evaluate(stmt, (value_of(stmt),), env)[0]
            elif isinstance(stmt, If):
                cond = self._condition(stmt, env, size)
                for block, chosen in ((stmt.then, np.flatnonzero(cond)), (stmt.orelse, np.flatnonzero(~cond))):
                    if block and len(chosen):
                        inner = self._gains(block, handed, {n: _at(v, chosen) for n, v in env.items()}, len(chosen))
                        for name, gain in inner.items():
                            gains[name][chosen] += gain
            elif isinstance(stmt, For):
                start, step, trips = self._trips(stmt, env, size)
                spread = _Spread(np.zeros(size, np.int64), trips)
                within = {n: _at(v, spread.of) for n, v in env.items()}
                within[stmt.var] = start[spread.of] + spread.number * step[spread.of]
                for name, gain in self._gains(stmt.body, handed, within, len(spread.of)).items():
                    gains[name] += spread.total(gain)
        return gains

    # -- scalars

    def _condition(self, stmt: If, env: Values, size: int) -> NDArray[np.bool_]:
        return np.broadcast_to(np.asarray(self._evaluate(stmt, (stmt.cond,), env)[0]) != 0, (size,))

    def _trips(self, stmt: For, env: Values, size: int) -> tuple[Ints, Ints, Ints]:
        """First value and step of the loop's variable and number of iterations, by element."""
        bounds = self._evaluate(stmt, control_of(stmt), env)
        start, stop, step = (np.broadcast_to(np.asarray(b, np.int64), (size,)) for b in bounds)
        return start, step, np.maximum(0, -((start - stop) // step))

    def _evaluate(self, stmt: Stmt, parts: tuple[Scalar, ...], env: Values, use: int = 0) -> tuple[Any, ...]:
        """``parts`` in ``env``, which are always the same for a statement and a ``use`` of it."""
        code = self.code.get((id(stmt), use))
        if code is None:
            code = self.code[id(stmt), use] = self._compile(parts)
        return code(env)

    def _compile(self, parts: tuple[Scalar, ...]) -> Callable[[Values], tuple[Any, ...]]:
        """``parts`` over the values by name. The source is made from trees, never from user text."""
        scope: dict[str, Any] = {
            "minimum": np.minimum, "maximum": np.maximum, "where": np.where, "divide": divide, "read": self._read,
        }  # fmt: skip
        return function_of(*source(parts, _leaf, ARRAYS), scope)

    def _read(self, tensor: str, offset: Any) -> Any:
        """Device data at the offsets, 0 beyond the end of what is known."""
        table = self.tables.get(tensor)
        if table is None or not len(table):
            return 0
        at = np.asarray(offset)
        return np.where((at >= 0) & (at < len(table)), table[np.clip(at, 0, len(table) - 1)], 0)


class _Spread:
    """Iterations ``first`` to ``stop`` of some elements as elements: ``of`` which each is, its ``number``."""

    def __init__(self, first: Ints, stop: Ints):
        trips = stop - first
        self.size = len(trips)
        self.of = np.repeat(np.arange(self.size), trips)
        self.starts = np.cumsum(trips) - trips
        self.number = np.arange(len(self.of)) - (self.starts - first)[self.of]

    def before(self, each: Ints) -> Ints:
        """The sum over the earlier iterations of the same element."""
        total = np.cumsum(each)
        return total - each - np.concatenate((np.zeros(1, np.int64), total))[self.starts][self.of]

    def total(self, each: Ints) -> Ints:
        """The sum over the iterations of each element."""
        return np.bincount(self.of, each, self.size).astype(np.int64)


def divide(op: str, a: Any, b: Any) -> Any:
    """A quotient by run-time numbers; 0 by zero."""
    by = np.where(np.asarray(b) == 0, 1, b)
    value = a % by if op == "%" else a // by if op == "//" else -(-a // by) if op == "cdiv" else a / by
    return np.where(np.asarray(b) == 0, 0, value)


def _modulo(value: Any, modulus: int) -> Any:
    return value % modulus if modulus else value


def _leaf(s: Expr, offset: str) -> str:
    if isinstance(s, Var):
        return f"v[{s.name!r}]"
    assert isinstance(s, Load)
    return f"read({s.tensor!r}, {offset})"


def _at(value: Any, of: NDArray[Any]) -> Any:
    return value[of] if isinstance(value, np.ndarray) and value.ndim else value
