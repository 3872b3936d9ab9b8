"""Tensors that no machine holds: found before anything is computed from their sizes."""

from __future__ import annotations

from moec.diagnostics import Problem, Where
from moec.ir.graph import Module, Value

MAX_BYTES = 1 << 47
"""Of one tensor, as far as its dimensions are numbers: the address space of a process."""

SHOWN = 20
"""Problems that are listed."""


def size_problems(module: Module) -> list[Problem]:
    """The tensors whose dimensions are negative or come to more than ``MAX_BYTES``, the first of them."""
    problems: list[Problem] = []
    for graph in module.functions.values():
        for v in graph.inputs:
            if not _holds(v):
                problems.append(_wrong(v, f"{graph.name}, input '{v.name}'"))
        for node in graph:
            problems += [
                _wrong(v, f"{graph.name}, {node.op} from {node.origin}") for v in node.results if not _holds(v)
            ]
            if len(problems) >= SHOWN:
                return problems
    return problems


def _holds(value: Value) -> bool:
    total = value.type.dtype.bits / 8
    for d in value.type.shape or ():
        if isinstance(d, int):
            if d < 0:
                return False
            total *= d or 1
    return total <= MAX_BYTES


def _wrong(value: Value, where: str) -> Problem:
    what = f"{value.type} is no tensor that a machine holds: at most {MAX_BYTES >> 40} TiB, dimensions from 0"
    return Problem(what, Where(node=where), "give smaller sizes")
