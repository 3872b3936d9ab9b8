"""The table of handlers.

For each ONNX operator the function that imports it and the operator versions it was written for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from moec.frontend.onnx.context import Op, Tensor
from moec.ir.graph import Value

Handler = Callable[[Op], "Value | Tensor | Sequence[Value | Tensor | None]"]
"""Makes IR nodes for an ONNX node and returns what its outputs are."""


class Entry(NamedTuple):
    """A handler and the operator versions (the opset in which the operator last changed) that it knows."""

    handler: Handler
    first: int
    last: int


HANDLERS: dict[tuple[str, str], Entry] = {}
"""Handlers by (domain, operator)."""


def onnx_op(*names: str, first: int = 1, last: int, domain: str = "") -> Callable[[Handler], Handler]:
    """Register a handler for operators whose versions ``first`` to ``last`` it knows."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[domain, name] = Entry(handler, first, last)
        return handler

    return register
