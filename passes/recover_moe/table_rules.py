"""Functions of the chosen expert, worked out as a table over all experts by the ops' own references.

An exporter's histogram divides expert numbers by a bin width, truncates and clamps; its masks compare them with
constants. Whatever the arithmetic, there are only E inputs to try.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.graph import Node
from moec.ops.registry import OPS
from moec.passes.recover_moe.axes import broadcast_axes
from moec.passes.recover_moe.contents import Abstract, Expert, Mask, Number, OfExpert, Truth, Zero
from moec.passes.recover_moe.interpret import Interpreter, Known


def tabulated(i: Interpreter, n: Node, k: Known) -> Abstract | None:
    """An elementwise op on functions of the expert and constants; None where it is something else or too many
    experts."""
    if not any(isinstance(m.content, Expert | OfExpert) for m in k) or "elementwise" not in OPS[n.op].traits:
        return None
    columns = [_column(i, n, j, m.content) for j, m in enumerate(k)]
    axes = broadcast_axes([m.axes for m in k])
    if axes is None or any(c is None for c in columns):
        return None
    with np.errstate(all="ignore"):
        table = np.asarray(OPS[n.op].ref(*columns, **n.attrs))
    made = np.broadcast_to(table, (i.expert_count,)).astype(n.result.type.dtype.carrier)
    return Abstract(axes, _named(made))


def _column(i: Interpreter, n: Node, position: int, content: Any) -> np.ndarray | None:
    carrier = n.operand(position).type.dtype.carrier
    if isinstance(content, Expert):
        return np.arange(i.expert_count).astype(carrier)
    if isinstance(content, OfExpert):
        return content.table
    if isinstance(content, Number):
        return np.asarray(content.value, carrier)
    return np.zeros((), carrier) if isinstance(content, Zero) else None


def _named(table: np.ndarray) -> Any:
    """The simplest content that the table is."""
    if table.dtype == np.bool_:
        hits = np.flatnonzero(table)
        if len(hits) in (0, len(table)):
            return Truth(bool(len(hits)))
        return Mask(int(hits[0])) if len(hits) == 1 else OfExpert(table)
    return Expert() if np.array_equal(table, np.arange(len(table))) else OfExpert(table)
