"""A case of fault injection: a small program, and inputs that make it take every path."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from vector_moves import values

from moec.codegen.capacities import Capacities
from moec.codegen.lower import lower_module
from moec.codegen.program import Program
from moec.ir.text import parse_module

Arrays = dict[str, np.ndarray]
Sizes = dict[str, int]
Maker = Callable[[np.random.Generator, Sizes, tuple[int, ...]], np.ndarray]
"""An input from random numbers, the sizes of the run and its shape."""
KIB = 1024
UB = 24 * KIB
"""Small, so that few numbers fill every buffer to its end and use both halves again and again."""
FULL = Capacities().ub


@dataclass(frozen=True)
class Case:
    """A program, and the inputs of each of its runs; ``known`` are sizes that no input tells."""

    name: str
    program: Callable[[], Program]
    runs: Callable[[np.random.Generator], list[Arrays]]
    known: Mapping[str, int] = field(default_factory=dict)


def lowered(text: str, ub: int = UB, tune: Mapping[str, int] | None = None, cores: int = 2) -> Program:
    return lower_module(parse_module(text), Capacities(aic=2, aiv=cores, ub=ub), tune or {})


def module(given: str, lines: Sequence[tuple[str, str]], symbols: str) -> str:
    """A module of ``lines``: (expression, types of its results)."""
    made, body = [], []
    for i, (call, kinds) in enumerate(lines):
        types = re.findall(r"\w+\[[^\]]*\]", kinds)
        names = [f"y{i}_{j}" for j in range(len(types))]
        body.append(f"  {', '.join(f'%{n}' for n in names)} = {call} : {kinds}\n")
        made += [(n, kind) for n, kind in zip(names, types, strict=True) if not kind.endswith(", 0]")]
    outs, returned = ", ".join(f"{n}: {kind}" for n, kind in made), ", ".join(f"%{n}" for n, _ in made)
    head = "".join(f"symbol {s}\n" for s in symbols.split("; "))
    return f"{head}func main({given}) -> ({outs}) {{\n{''.join(body)}  return {returned}\n}}\n"


def drawn(given: str, sizes: Sizes, makers: Mapping[str, Maker], rng: np.random.Generator) -> Arrays:
    """Inputs of the types in ``given``: numbers of their dtype, or what ``makers`` say."""
    out = {}
    for name, dtype, dims in re.findall(r"%(\w+): (\w+)\[([^\]]*)\]", given):
        shape = tuple(int(eval(d, {}, dict(sizes))) for d in dims.split(", ") if d)
        made = makers[name](rng, sizes, shape) if name in makers else values(rng, shape, dtype)
        integers = {"i32": np.int32, "i64": np.int64}
        out[name] = np.asarray(made, integers[dtype]) if dtype in integers else np.asarray(made)
    return out


def case(
    name: str,
    given: str,
    lines: Sequence[tuple[str, str]],
    sizes: Sequence[Sizes],
    symbols: str = "T in [0, 1000000]",
    ub: int = UB,
    tune: Mapping[str, int] | None = None,
    known: Mapping[str, int] | None = None,
    **makers: Maker,
) -> Case:
    text = module(given, lines, symbols)
    return Case(
        name,
        lambda: lowered(text, ub, tune),
        lambda rng: [drawn(given, s, makers, rng) for s in sizes],
        known or {},
    )


def below(limit: int | str) -> Maker:
    """Integers from 0 up to ``limit``, which may be an expression of the sizes."""

    def make(rng: np.random.Generator, sizes: Sizes, shape: tuple[int, ...]) -> np.ndarray:
        most = limit if isinstance(limit, int) else int(eval(limit, {}, dict(sizes)))
        return rng.integers(0, most, shape)

    return make


def spread(total: str) -> Maker:
    """Counts of experts that sum to ``total``; the second has none."""

    def make(rng: np.random.Generator, sizes: Sizes, shape: tuple[int, ...]) -> np.ndarray:
        whole = int(eval(total, {}, dict(sizes)))
        out = np.full(shape[0], whole // max(1, shape[0] - 1))
        out[1] = 0
        out[0] += whole - out.sum()
        return out

    return make


def fixed(number: float, dtype: type = np.int64) -> Maker:
    return lambda rng, sizes, shape: np.full(shape, number, dtype)


def positive(rng: np.random.Generator, sizes: Sizes, shape: tuple[int, ...]) -> np.ndarray:
    return np.abs(rng.standard_normal(shape)).astype(np.float32)


def near_one(rng: np.random.Generator, sizes: Sizes, shape: tuple[int, ...]) -> np.ndarray:
    return (1 + 0.01 * rng.standard_normal(shape)).astype(np.float32)


def permutation(rng: np.random.Generator, sizes: Sizes, shape: tuple[int, ...]) -> np.ndarray:
    return rng.permutation(int(np.prod(shape))).reshape(shape)


def sparse(rng: np.random.Generator, sizes: Sizes, shape: tuple[int, ...]) -> np.ndarray:
    """A third of the numbers is not zero."""
    return (rng.standard_normal(shape) * (rng.random(shape) < 0.3)).astype(np.float32)


def T(*numbers: int) -> list[Sizes]:
    return [{"T": n} for n in numbers]
