"""Sizes of a kernel: dimensions as literals or run-time arguments, and consistent numbers to check the kernel with."""

from __future__ import annotations

from collections.abc import Sequence

from moec.codegen.builder import KernelBuilder
from moec.codegen.lower.base import Lowering
from moec.codegen.scalar import Arg, Scalar
from moec.ir.symbol import Dim, evaluate, symbols_of

CHECKED = (0, 1, 3, 70)
"""What run-time sizes are in checks, all at once, as near as their bounds allow."""
MANY = 200_000
"""What each is in turn, beside others of 3: each core takes many tiles (the middle ones are left out of the check)."""


class Sizes:
    """``given`` holds the dimension of every argument made so far."""

    def __init__(self, k: KernelBuilder, cx: Lowering):
        self.k, self.cx = k, cx
        self.given: dict[str, Dim] = {}

    def of(self, dim: Dim, name: str = "n") -> Scalar:
        """``dim`` as a literal, or as a run-time argument called ``name``."""
        if isinstance(dim, int):
            return dim
        for have, value in self.given.items():
            if value == dim:
                return Arg(have)
        low, high = self.cx.bounds(dim)
        arg = self.k.arg(name, max(0, low), high)
        self.given[arg.name] = dim
        return arg

    def witness(self, cores: Sequence[int] = (1, 2)) -> None:
        """Checks at sizes that belong together: every symbol at each of CHECKED, and each in turn at MANY."""
        table = self.cx.module.symbols
        symbols = sorted({s for dim in self.given.values() for s in symbols_of(dim)})
        runs = [dict.fromkeys(symbols, n) for n in (CHECKED if symbols else CHECKED[:1])]
        runs += [dict.fromkeys(symbols, 3) | {s: MANY} for s in symbols]
        for run in runs:
            env = {s: min(max(n, table[s][0]), table[s][1]) for s, n in run.items()}
            numbers = {name: evaluate(dim, env) for name, dim in self.given.items()}
            if all(n >= 0 for n in numbers.values()):
                for c in cores:
                    self.k.witness(c, None, **numbers)


def numel(shape: Sequence[Dim]) -> Dim:
    """How many elements a shape has."""
    total: Dim = 1
    for d in shape:
        total = total * d
    return total


def strides(shape: Sequence[Dim]) -> list[Dim]:
    """Elements between neighbours along each dimension of a dense tensor."""
    out: list[Dim] = []
    below: Dim = 1
    for d in reversed(shape):
        out.append(below)
        below = below * d
    return out[::-1]
