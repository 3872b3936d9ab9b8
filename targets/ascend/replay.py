"""Replays a given tiling of a matrix product: the tile program that a text describes, timed by the cycle model.

    base=128x256x64,l1=512x256,cores=24,split=1024x1536,panel=4,unit=yes

Keys: ``base`` M x N x K of one Mmad (needed); ``l1`` K of the first and the second operand in L1 at a time (one
number: both; default that of ``base``); ``buffers`` of each operand in L1, 1 or 2; ``l0c`` output tiles in L0C, 1 or 2;
``cores``; ``split`` M x N of the output that a core takes at a time (default one tile); ``panel`` rows of such blocks
that are taken before the next rows (default all); ``order`` columns or diagonal; ``stagger`` yes: each core starts
elsewhere in K; ``unit`` yes: unit flags between Mmad and Fixpipe; ``bypass`` a, b or ab: operands read past the L2;
``b`` nk or kn: how the second operand is stored.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.tiling import CubeTile
from moec.diagnostics import Problem, Refusal, Usage, suggest
from moec.targets.ascend.machine import BUFFERS, Machine
from moec.targets.ascend.model.result import KernelResult
from moec.targets.ascend.model.simulate import simulate
from moec.targets.ascend.opmodel.bands import CYCLES

TRACED = 2000
"""Instructions of the slowest core that a trace shows."""


@dataclass(frozen=True)
class Tiling:
    """What a text describes; ``cores`` 0: all that the machine has. ``b_by_k``: the second operand is stored K x N."""

    tile: CubeTile
    cores: int = 0
    b_by_k: bool = False


def _number(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise ValueError("a number above 0")
    return int(text)


def _numbers(*counts: int) -> Callable[[str], tuple[int, ...]]:
    def read(text: str) -> tuple[int, ...]:
        parts = text.split("x")
        if len(parts) not in counts:
            raise ValueError(f"{' or '.join(map(str, counts))} numbers with x between")
        return tuple(map(_number, parts))

    return read


def _one_of(**options: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text not in options:
            raise ValueError(" or ".join(options))
        return options[text]

    return read


YES = _one_of(yes=True, no=False)
ONE_OR_TWO = _one_of(**{"1": 1, "2": 2})
KEYS: Mapping[str, Callable[[str], Any]] = {
    "base": _numbers(3),
    "l1": _numbers(1, 2),
    "buffers": ONE_OR_TWO,
    "l0c": ONE_OR_TWO,
    "cores": _number,
    "split": _numbers(2),
    "panel": _number,
    "order": _one_of(columns=False, diagonal=True),
    "stagger": YES,
    "unit": YES,
    "bypass": _one_of(a="a", b="b", ab="ab"),
    "b": _one_of(nk=False, kn=True),
}


def tiling(text: str) -> Tiling:
    """The tiling that ``text`` describes. Usage names everything that is wrong with it."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for part in text.split(","):
        name, equals, value = (p.strip() for p in part.partition("="))
        if name not in KEYS or not equals:
            problems.append(
                Problem(f"--tile: '{part}' is none of its keys", todo=suggest(name, KEYS) or ", ".join(KEYS))
            )
            continue
        try:
            values[name] = KEYS[name](value)
        except ValueError as error:
            problems.append(Problem(f"--tile: '{part}'", todo=f"write {name}= and {error}"))
    if "base" not in values and not problems:
        problems.append(Problem("--tile: base is missing", todo="write base=128x256x64"))
    if problems:
        raise Usage(problems)
    m, n, k0 = values["base"]
    l1 = values.get("l1", (k0,))
    block_m, block_n = values.get("split", (0, 0))
    tile = CubeTile(
        m, n, l1[0], k0, values.get("l0c", 1), l1[-1], values.get("buffers", 2), block_m, block_n,
        values.get("panel", 0), values.get("order", False), values.get("stagger", False), values.get("unit", False),
        values.get("bypass", ""),
    )  # fmt: skip
    wrong = [f"{what} {x} is no multiple of {by}" for what, x, by in _grain(tile) if x % by]
    if wrong:
        raise Usage([Problem(f"--tile: {w}", todo="choose a multiple") for w in wrong])
    return Tiling(tile, values.get("cores", 0), values.get("b", False))


def _grain(t: CubeTile) -> list[tuple[str, int, int]]:
    sizes = [("base M", t.m, 16), ("base N", t.n, 16), ("base K", t.k0, 16)]
    deep, shallow = max(t.k1, t.depth_b), min(t.k1, t.depth_b)
    return [*sizes, ("l1", shallow, t.k0), ("l1", deep, shallow)]


def replay(
    machine: Machine, how: Tiling, size: tuple[int, int, int], dtype: str, out: str, spans: int = 0
) -> KernelResult:
    """Times [M, K] by [N, K] (``size`` M, N, K) with the tiling ``how``.

    Published kernels plan all of each memory, so nothing is held back here. Refusal where tiles do not fit on chip, or
    operands and result into the chip's memory.
    """
    m, n, k = size
    needed = (m * k + k * n) * ITEMSIZE[dtype] + m * n * ITEMSIZE[out]
    if needed > machine["memory.hbm_bytes"]:
        what = f"operands and result of {m} x {n} x {k} {dtype} take {needed / 1024:,.0f} KiB"
        raise Refusal(
            f"{what}, {machine.title} has {machine['memory.hbm_bytes'] / 1024:,.0f} KiB", todo="give smaller sizes"
        )
    if how.cores:
        count = machine.figures["cores.aic"]
        if how.cores > machine.cores("aic"):
            raise Refusal(f"--tile: cores={how.cores}, {machine.name} has {machine.cores('aic')}", todo="give fewer")
        machine = replace(machine, figures={**machine.figures, "cores.aic": replace(count, value=how.cores)})
    whole = {space.lower(): int(machine[f"buffers.{space}.bytes"]) for space in BUFFERS}
    caps = Capacities(machine.cores("aic"), machine.cores("aiv"), **whole)
    kernel = matmul_kernel("matmul", caps, how.tile, Product(m, n, k, 1, dtype, out, how.b_by_k))
    return simulate(kernel, machine, {}, spans=spans)


def band(result: KernelResult) -> dict[str, Any]:
    """Between what times nine in ten measurements are expected, in microseconds, and how sure that is: the band of the
    cycle model, which ends at what the hardware allows."""
    low = max(result.us * CYCLES.low, min(result.us, result.floor_us + result.launch_us))
    return {"low_us": round(low, 3), "high_us": round(result.us * CYCLES.high, 3), "confidence": CYCLES.confidence}


def write_trace(path: Path, result: KernelResult, machine: Machine) -> None:
    """The instructions of the slowest core that ``result`` kept, as CSV: pipe, instruction, first and last cycle it
    held the pipe, and the same in microseconds from the core's start."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("pipe", "instr", "start_cycle", "end_cycle", "start_us", "running_time_us"))
        for i in result.intervals:
            times = machine.us(i.start), machine.us(i.stop - i.start)
            writer.writerow((i.pipe, i.label, i.start, i.stop, *(f"{t:.4f}" for t in times)))
