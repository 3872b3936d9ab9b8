"""Running branches and loops: their bodies are functions of the module, captures are operands."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from moec.eval.binding import Env
from moec.ir.graph import Node

Array = np.ndarray

STEPS = 100_000
"""A loop without a trip count that takes more steps than this is refused rather than run for ever."""


class Caller(Protocol):
    """What runs a function of the module."""

    def call(self, name: str, args: list[Array], outer: Env) -> list[Array]:
        """The results of function ``name``."""
        ...


def run_control(node: Node, operands: list[Array | None], caller: Caller, env: Env) -> list[Any]:
    """The results of an ``if``, ``loop`` or ``scan`` node."""
    return {"if": _if, "loop": _loop, "scan": _scan}[node.op](node, operands, caller, env)


def _if(node: Node, operands: list[Array | None], caller: Caller, env: Env) -> list[Any]:
    given: list[Any] = operands
    cond, *captures = given
    return caller.call(node.attrs["then" if cond.all() else "otherwise"], captures, env)


def _loop(node: Node, operands: list[Array | None], caller: Caller, env: Env) -> list[Any]:
    trips, go = operands[:2]
    count, first = node.attrs["states"], 2
    states: list[Any] = operands[first : first + count]
    captures: list[Any] = operands[first + count :]
    collected: list[list[Array]] = [[] for _ in node.results[count:]]
    limit = STEPS if trips is None else int(trips.reshape(-1)[0])
    going, step = go is None or bool(go.all()), 0
    while going and step < limit:
        if step >= STEPS:
            raise ValueError(f"the loop takes more than {STEPS} steps")
        results = caller.call(node.attrs["body"], [np.array(step, np.int64), np.array(True), *states, *captures], env)
        going, states = bool(results[0].all()), results[1 : 1 + count]
        for rows, row in zip(collected, results[1 + count :], strict=True):
            rows.append(row)
        step += 1
    return [*states, *(_stacked(rows, v.type) for rows, v in zip(collected, node.results[count:], strict=True))]


def _stacked(rows: list[Array], type_: Any) -> Array:
    if rows:
        return np.stack(rows)
    lead = [d if isinstance(d, int) else 0 for d in (type_.shape or (0,))]
    return np.zeros((0, *lead[1:]), type_.dtype.carrier)


def _scan(node: Node, operands: list[Array | None], caller: Caller, env: Env) -> list[Any]:
    attrs = node.attrs
    given: list[Any] = operands
    states, inputs = given[: attrs["states"]], given[attrs["states"] : attrs["states"] + attrs["scans"]]
    captures = given[attrs["states"] + attrs["scans"] :]
    moved = [np.moveaxis(x, a, 0) for x, a in zip(inputs, attrs["input_axes"], strict=True)]
    moved = [x[::-1] if back else x for x, back in zip(moved, attrs["input_backward"], strict=True)]
    collected: list[list[Array]] = [[] for _ in node.results[attrs["states"] :]]
    for step in range(len(moved[0])):
        results = caller.call(attrs["body"], [*states, *(x[step] for x in moved), *captures], env)
        states = results[: attrs["states"]]
        for rows, row in zip(collected, results[attrs["states"] :], strict=True):
            rows.append(row)
    outputs = []
    for rows, v, axis, back in zip(
        collected, node.results[attrs["states"] :], attrs["output_axes"], attrs["output_backward"], strict=True
    ):
        outputs.append(np.moveaxis(_stacked(rows[::-1] if back else rows, v.type), 0, axis))
    return [*states, *outputs]
