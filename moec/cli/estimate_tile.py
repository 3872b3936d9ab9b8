"""``moec estimate matmul --tile ...``: a given tiling of a matrix product, replayed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from moec.cli.common import print_json
from moec.diagnostics import Problem, Refusal, Usage

CUBE = ("f16", "bf16", "f32")


def estimate_tile(
    op: str | None, sizes: Sequence[int], dtype: str, text: str, target: str, trace: Path | None, as_json: bool
) -> None:
    """Print task time with its band, and per pipe the busy time of the slowest core and of all in the mean."""
    from moec.targets.ascend.machine import load
    from moec.targets.ascend.replay import TRACED, band, replay, tiling, write_trace

    problems = []
    if op != "matmul":
        problems.append(Problem("--tile describes a matmul", todo="moec estimate matmul --shape M,N,K --tile ..."))
    if len(sizes) != 3:
        problems.append(Problem("--tile goes with the three sizes M, N and K", todo="write --shape 8192,8192,8192"))
    if dtype not in CUBE:
        problems.append(Problem(f"--tile of {dtype}", todo=f"give --dtype: {', '.join(CUBE)}"))
    if problems:
        raise Usage(problems)
    how, machine = tiling(text), load(target)
    m, n, k = sizes
    result = replay(machine, how, (m, n, k), dtype, dtype, spans=TRACED if trace else 0)
    if trace:
        try:
            write_trace(trace, result, machine)
        except OSError as error:
            todo = "name a file in a folder that exists"
            raise Refusal(f"cannot write {trace}: {error.strerror}", todo=todo) from None
    mean = sum(result.core_cycles) // len(result.core_cycles)
    answer: dict[str, Any] = {
        "op": op, "sizes": [m, n, k], "dtype": dtype, "tile": text, "target": target, "cores": result.blocks,
        "us": round(result.us, 3), **band(result), "core_us": round(machine.us(mean), 3),
        "floor_us": round(result.floor_us, 3),
        "bound": result.bound, "hbm_bytes": result.hbm_bytes, "l2_bytes": result.l2_bytes,
        "pipes_us": {p: round(machine.us(c), 3) for p, c in result.mean_busy.items() if c},
        "slowest_core_pipes_us": {p: round(machine.us(c), 3) for p, c in result.busy.items() if c},
        "model": result.version,
    }  # fmt: skip
    if as_json or not sys.stdout.isatty():
        print_json(answer)
        return
    typer.echo(f"matmul {m} x {n} x {k} {dtype} as {text} on {target}")
    for name, value in answer.items():
        if name not in ("op", "sizes", "dtype", "tile", "target"):
            shown = ", ".join(f"{p} {x:,.1f}" for p, x in value.items()) if isinstance(value, dict) else value
            typer.echo(f"  {name:<22} {shown}")
