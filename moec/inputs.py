"""Arrays handed to a layer: which are its inputs, which its weights, and what sizes they imply."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from moec.arrays import Arrays
from moec.diagnostics import Problem, Refusal, Where, suggest
from moec.eval import bind
from moec.ir.attrs import UnreadData
from moec.ir.graph import Module


def open_weights(module: Module) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights that have no numbers of their own, or whose side file is not there."""
    return {
        node.attrs["name"]: tuple(node.attrs["shape"])
        for node in module.nodes()
        if node.op == "weight" and (node.attrs["data"] is None or isinstance(node.attrs["data"], UnreadData))
    }


def divide(module: Module, arrays: Arrays, sizes: Mapping[str, int], file: Path) -> tuple[Arrays, Arrays]:
    """The inputs and the weights among ``arrays``, read from ``file``. Arrays that are neither are named on stderr.

    Refusal lists inputs and weights that are missing, and sizes given otherwise than the inputs have.
    """
    wanted = {v.name: v for v in module.main.inputs}
    weights = {n.attrs["name"] for n in module.nodes() if n.op == "weight"}
    problems: list[Problem] = []
    where = Where(str(file))
    for name, value in wanted.items():
        if name not in arrays:
            hint = suggest(name, arrays) or f"given are: {', '.join(sorted(arrays)) or 'none'}"
            problems.append(Problem(f"input '{name}' ({value.type}) is missing", where, hint))
    for name in open_weights(module):
        if name not in arrays:
            problems.append(
                Problem(f"weight '{name}' is missing", where, suggest(name, arrays) or "add it under that name")
            )
    env: dict[str, int] = {}
    for name, value in wanted.items():
        if name in arrays:
            bind(value.type, arrays[name].shape, env)
    for name, size in sizes.items():
        if env.get(name, size) != size:
            problems.append(Problem(f"--set {name}={size}, but the inputs have {name} = {env[name]}", where))
    if problems:
        raise Refusal(problems)
    rest = [name for name in arrays if name not in wanted and name not in weights]
    if rest:
        print(f"moec: not used from {file}: {', '.join(rest)}", file=sys.stderr)
    return {n: arrays[n] for n in wanted}, {n: a for n, a in arrays.items() if n in weights and n not in wanted}
