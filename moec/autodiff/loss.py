"""The loss hook: where gradients enter the backward graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moec.diagnostics import Problem, Refusal, suggest
from moec.ir.graph import Graph, Value
from moec.ir.types import DType
from moec.ops.tape import Tape

PREFIX = "d_"
"""What the name of a gradient begins with."""

BALANCE = "balance_loss"
"""The output that counts as a loss beside whichever others do, unless losses are named."""


def losses(graph: Graph, names: Sequence[str], varied: Mapping[Value, DType]) -> dict[str, Value]:
    """The outputs to differentiate, by name: those named; else the only scalar that varies; else, where there is no
    scalar, every output that varies. A balance loss comes beside the unnamed ones.

    Refusal for unknown names, for several scalars of which none is named, and where nothing varies.
    """
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    problems = [_unknown(n, outputs) for n in names if n not in outputs]
    problems += [
        Problem(f"output '{n}' does not vary with what is differentiated for", todo="name another output as the loss")
        for n in names
        if n in outputs and outputs[n] not in varied
    ]
    if problems:
        raise Refusal(problems)
    if names:
        return {n: outputs[n] for n in dict.fromkeys(names)}
    candidates = {n: v for n, v in outputs.items() if v in varied}
    beside = {BALANCE: candidates.pop(BALANCE)} if BALANCE in candidates and len(candidates) > 1 else {}
    scalars = {n: v for n, v in candidates.items() if is_scalar(v)}
    if len(scalars) > 1:
        listed = ", ".join(scalars)
        raise Refusal(
            f"several outputs are scalars: {listed}", todo="name the loss, or several whose sum it is: --loss"
        )
    if not candidates:
        raise Refusal("no output varies with what is differentiated for", todo="name inputs or weights: --wrt")
    return {**(scalars or candidates), **beside}


def _unknown(name: str, outputs: Mapping[str, Value]) -> Problem:
    return Problem(f"no output '{name}'", todo=suggest(name, outputs) or f"outputs are: {', '.join(outputs)}")


def is_scalar(v: Value) -> bool:
    """Whether the value has one element."""
    return v.type.shape is not None and all(d == 1 for d in v.type.shape)


def seeds(graph: Graph, chosen: Mapping[str, Value], tape: Tape, scale: float) -> list[tuple[Value, Value]]:
    """Each chosen output with its incoming gradient: a ``seed`` for a scalar, else a graph input ``d_<output>`` of its
    type. Refusal where an input has that name.
    """
    taken = {v.name for v in graph.inputs}
    problems = [
        Problem(f"an input is called '{PREFIX}{n}', as the gradient of output '{n}' would be", todo="rename it")
        for n, v in chosen.items()
        if not is_scalar(v) and PREFIX + n in taken
    ]
    if problems:
        raise Refusal(problems)
    return [
        (v, tape.seed(v, scale=scale) if is_scalar(v) else graph.add_input(PREFIX + name, v.type))
        for name, v in chosen.items()
    ]
