"""Sizes that a user gives for the symbols of a module (``--set T=4096``), and those that moec assumes where none are
given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from moec.diagnostics import Problem, Refusal, Usage, suggest
from moec.ir.graph import Module
from moec.ir.symbol import DEFAULT_BOUND, Bounds, symbols_of

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


def check_sizes(module: Module, sizes: Mapping[str, int]) -> None:
    """Refusal with every size that names no symbol of the module or lies outside its bounds."""
    table = symbol_bounds(module)
    problems: list[Problem] = []
    for name, size in sizes.items():
        if name not in table:
            known = f"its dims: {', '.join(table)}" if table else "every dim of this layer is a number already"
            problems.append(Problem(f"--set: the layer has no dim '{name}'", todo=suggest(name, table) or known))
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
