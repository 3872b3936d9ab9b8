"""Branches and loops. Their bodies are functions of the module; what a body reads from outside are operands.

The results' types are stated by the node, as a body may return other shapes at each step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ops.registry import op
from moec.ops.tape import no_grad

Array = np.ndarray


def _run_elsewhere(*xs: Array, **attrs: Any) -> Array:
    raise ValueError("the evaluator runs the bodies of branches and loops, not this reference")


@op("if(cond: any, captures...: any, *, then: fn, otherwise: fn) -> any")
class If:
    """The results of function ``then`` where cond (one bool) holds, else of ``otherwise``, both on the captures."""

    dtype = "cond"
    ref = staticmethod(_run_elsewhere)
    cost = "composite"
    onnx = "If"
    traits = ("control", "declared")
    grad = no_grad("a branch that data decides keeps either of two sets of activations; decide it before")


@op("loop(trips?: any, cond?: any, values...: any, *, body: fn, states: int) -> any")
class Loop:
    """Runs ``body`` until trips steps are done or its condition is false.

    ``values`` are the states, then the captures. body(step i64[], going bool[], states, captures) gives (going, states,
    rows); results are the last states and each row stacked along a new first dimension.
    """

    dtype = "values"
    ref = staticmethod(_run_elsewhere)
    cost = "composite"
    onnx = "Loop"
    traits = ("control", "declared")
    grad = no_grad("a loop of steps that data decides keeps no fixed set of activations; write it without one")


@op(
    "scan(values...: any, *, body: fn, states: int, scans: int, input_axes: ints, input_backward: ints, "
    "output_axes: ints, output_backward: ints) -> any"
)
class Scan:
    """Runs ``body`` once for each slice of the scanned inputs.

    ``values`` are the states, the scanned inputs, then the captures; input j is cut along input_axes[j], from the end
    where input_backward[j] is 1. body(states, slices, captures) gives (states, rows); rows are stacked along
    output_axes.
    """

    dtype = "values"
    ref = staticmethod(_run_elsewhere)
    cost = "composite"
    onnx = "Scan"
    traits = ("control", "declared")
    grad = no_grad("a scan keeps activations of every step; write its steps one after the other")
