"""Sizes that a user gives for the symbols of a module (``--set T=4096``), and those that moec assumes where none are
given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moec.diagnostics import Problem, Refusal, Usage, suggest
from moec.ir.graph import Module
from moec.ir.symbol import DEFAULT_BOUND, Bounds, Dim, Expr, evaluate, substitute, symbols_of

ASSUMED = 128
"""The size assumed for a symbol that has no upper bound of its own and was not set."""

_SETTING = re.compile(r"([A-Za-z_][\w.]*)=(-?\d+)\Z")


def parse_sizes(settings: Iterable[str]) -> dict[str, int]:
    """The sizes that ``T=4096,B=2`` settings give; Usage for what is no ``NAME=NUMBER`` or given twice with different
    numbers.
    """
    sizes: dict[str, int] = {}
    problems: list[Problem] = []
    for part in (p.strip() for setting in settings for p in setting.split(",")):
        match = _SETTING.match(part)
        if match is None:
            problems.append(
                Problem(f"--set: '{part}' is no NAME=NUMBER", todo="write --set T=4096 or --set T=4096,B=2")
            )
        elif sizes.setdefault(match[1], int(match[2])) != int(match[2]):
            problems.append(Problem(f"--set: '{match[1]}' is given twice, as {sizes[match[1]]} and {match[2]}"))
    if problems:
        raise Usage(problems)
    return sizes


def symbol_bounds(module: Module) -> dict[str, Bounds]:
    """Every symbol in the types of the inputs, with its bounds, in order of appearance.

    Other symbols of a module stand for sizes that only the data tells (how many elements are not zero).
    """
    table: dict[str, Bounds] = {}
    for value in module.main.inputs:
        for dim in value.type.shape or ():
            for name in symbols_of(dim):
                table.setdefault(name, module.symbols.get(name, DEFAULT_BOUND))
    return table


def given_sizes(module: Module, derived: Mapping[str, Dim], sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes by symbol, of ``sizes`` by symbol or by the name of one that is ``derived`` from symbols: ``s = 8 * p``
    and s=8192 give p=1024. Refusal with every size that no symbol's size gives, and as ``check_sizes``.
    """
    table = symbol_bounds(module)
    found = {name: size for name, size in sizes.items() if name in table or name not in derived}
    problems: list[Problem] = []
    for name in (n for n in sizes if n not in found):
        problem = _solve(_Named(name, sizes[name], derived[name]), found, table)
        if problem is not None:
            problems.append(problem)
    if problems:
        raise Refusal(problems)
    check_sizes(module, found, derived)
    return found


@dataclass(frozen=True)
class _Named:
    """A size that is given for a name which stands for ``dim``."""

    name: str
    size: int
    dim: Dim

    def wrong(self, why: str, todo: str) -> Problem:
        """Why no symbol's size gives it."""
        return Problem(f"--set: {self.name}={self.size}, and {self.name} is {self.dim}{why}", todo=todo)


def _solve(given: _Named, found: dict[str, int], table: Mapping[str, Bounds]) -> Problem | None:
    """Put into ``found`` the symbol's size that gives the named one, where the other symbols' sizes are there; else
    the problem with it.
    """
    dim = substitute(given.dim, found)
    wanted = list(dict.fromkeys(symbols_of(dim)))
    if not wanted:
        return None if dim == given.size else given.wrong(f", here {dim}", "give only one of them")
    if len(wanted) > 1 or not _is_linear(dim, wanted[0]):
        return given.wrong("", f"give {', '.join(wanted)} instead")
    symbol = wanted[0]
    start, low, high = (evaluate(dim, {symbol: n}) for n in (0, *table[symbol]))
    step = evaluate(dim, {symbol: 1}) - start
    size, rest = divmod(given.size - start, step)
    if not table[symbol][0] <= size <= table[symbol][1]:
        ends = sorted((low, high))
        return given.wrong(f" with {symbol} in {list(table[symbol])}", f"choose a size from {ends[0]} to {ends[1]}")
    if rest:
        return given.wrong("", f"choose a multiple of {step}{f', plus {start}' if start else ''}")
    found[symbol] = size
    return None


def _is_linear(dim: Dim, symbol: str) -> bool:
    """Whether ``dim``, of no other symbol, is ``a * symbol + b`` with a not 0."""
    return isinstance(dim, Expr) and all(mono in ((), (symbol,)) for mono, _ in dim.terms)


def check_sizes(module: Module, sizes: Mapping[str, int], derived: Iterable[str] = ()) -> None:
    """Refusal with every size that names no symbol of the module or lies outside its bounds. ``derived`` names may have
    been meant too.
    """
    table = symbol_bounds(module)
    problems: list[Problem] = []
    for name, size in sizes.items():
        if name not in table:
            known = f"its dims: {', '.join(table)}" if table else "every dim of this layer is a number already"
            problems.append(
                Problem(f"--set: the layer has no dim '{name}'", todo=suggest(name, (*table, *derived)) or known)
            )
            continue
        low, high = table[name]
        if not low <= size <= high:
            todo = f"choose a size from {low} to {high}"
            problems.append(Problem(f"--set: {name}={size} is outside the bounds of '{name}'", todo=todo))
    if problems:
        raise Refusal(problems)


def complete_sizes(module: Module, sizes: Mapping[str, int]) -> dict[str, int]:
    """A size for every symbol: the given one, else its own upper bound, else ``ASSUMED`` (or the nearest that its
    bounds allow).
    """
    check_sizes(module, sizes)
    complete: dict[str, int] = {}
    for name, (low, high) in symbol_bounds(module).items():
        assumed = high if high < DEFAULT_BOUND[1] else max(low, ASSUMED)
        complete[name] = sizes.get(name, assumed)
    return complete
