"""Arrays handed to a layer: which are its inputs, which its weights, and what sizes they imply."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from moec.arrays import Arrays
from moec.diagnostics import Problem, Refusal, Where, suggest
from moec.eval import bind
from moec.eval.ranks import part_names, whole_shape, world
from moec.ir.attrs import UnreadData
from moec.ir.graph import Module
from moec.ir.symbol import evaluate

SHOWN = 20
"""Names of arrays that a message lists."""


def open_weights(module: Module) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights that have no numbers of their own, or whose side file is not there; of those
    that ranks have parts of, the whole.
    """
    return {
        node.attrs["name"]: tuple(evaluate(d, {}) for d in whole_shape(node.attrs["name"], node.attrs["shape"], module))
        for node in module.nodes()
        if node.op == "weight" and (node.attrs["data"] is None or isinstance(node.attrs["data"], UnreadData))
    }


def divide(module: Module, arrays: Arrays, sizes: Mapping[str, int], file: Path) -> tuple[Arrays, Arrays]:
    """The inputs and the weights among ``arrays``, read from ``file``. Arrays that are neither are named on stderr.
    Those of one rank are called ``rank3.x``; a sharded one may be given whole (see ``moec.eval.ranks``).

    Refusal lists inputs and weights that are missing, and sizes given otherwise than the inputs have.
    """
    wanted = {v.name: v for v in module.main.inputs}
    weights = {n.attrs["name"] for n in module.nodes() if n.op == "weight"}
    problems: list[Problem] = []
    where = Where(str(file))
    ranks = world(module, sizes)
    given = [part_names(name, arrays, ranks) for name in (*wanted, *weights)]
    names = dict(zip((*wanted, *weights), given, strict=True))
    for name, value in wanted.items():
        if not names[name]:
            shown = [*sorted(arrays)[:SHOWN], *(["..."] if len(arrays) > SHOWN else [])]
            hint = suggest(name, arrays) or f"given are: {', '.join(shown) or 'none'}"
            problems.append(Problem(f"input '{name}' ({value.type}) is missing", where, hint))
    for name in open_weights(module):
        if not names[name]:
            problems.append(
                Problem(f"weight '{name}' is missing", where, suggest(name, arrays) or "add it under that name")
            )
    env: dict[str, int] = {}
    for name, value in wanted.items():
        if name in arrays and name not in module.shards:
            bind(value.type, arrays[name].shape, env)
    for name, size in sizes.items():
        if env.get(name, size) != size:
            problems.append(Problem(f"--set {name}={size}, but the inputs have {name} = {env[name]}", where))
    if problems:
        raise Refusal(problems)
    used = {key: name in wanted for name, keys in names.items() for key in keys}
    rest = [name for name in arrays if name not in used]
    if rest:
        print(f"moec: not used from {file}: {', '.join(rest)}", file=sys.stderr)
    return {n: arrays[n] for n, i in used.items() if i}, {n: arrays[n] for n, i in used.items() if not i}
