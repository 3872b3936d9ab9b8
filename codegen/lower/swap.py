"""Lowering of activations that are parked on the host: copies on streams of their own, one for each way.

The link works both ways at once. A copy out starts when what makes the tensor is over, and its memory is taken again
from the first copy back on, where compute waits for all copies out so far. A copy back starts when compute has come to
where the plan puts it, so that it does not take memory before; who reads it waits for it.
"""

from __future__ import annotations

from moec.codegen.lower.base import Lowering, lowering
from moec.codegen.program import Copy
from moec.codegen.steps import COMPUTE, Record, Wait
from moec.ir.graph import Node

OUT, BACK = "copy_out", "copy_back"


@lowering("swap_out")
def swap_out(cx: Lowering, node: Node) -> None:
    cx.copy(node, cx.parked(node), cx.tensor(node.operand(0)), OUT)


@lowering("swap_in")
def swap_in(cx: Lowering, node: Node) -> None:
    number = sum(isinstance(s, Copy) and s.stream == BACK for s in cx.steps)
    waited = [i for i, s in enumerate(cx.steps) if isinstance(s, Record) and s.stream == OUT]
    if any(isinstance(s, Copy) and s.stream == OUT for s in cx.steps[waited[-1] if waited else 0 :]):
        _edge(cx, f"parked{number}", OUT, COMPUTE)
    _edge(cx, f"back{number}", COMPUTE, BACK)
    cx.copy(node, cx.result(node), cx.tensor(node.operand(0)), BACK)


def _edge(cx: Lowering, event: str, first: str, then: str) -> None:
    """What comes next on ``then`` starts when all of ``first`` so far is over."""
    cx.steps += [Record(event, first), Wait(event, then)]
