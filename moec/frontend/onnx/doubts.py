"""What looks wrong or slow about a model as it stands: sizes that its tracer baked in, sums that lose terms, and sizes
that the host must read.
"""

from __future__ import annotations

from collections.abc import Iterable

from moec.diagnostics import Problem, Where
from moec.frontend.onnx.facts import Facts
from moec.ir.data import TensorData
from moec.ir.graph import Module, Node, Value
from moec.ir.symbol import Dim, Expr
from moec.ops.registry import OPS

SHOWN = 5
"""Places that one warning names at most."""

_LAYOUT = ("reshape", "expand", "cast", "slice", "concat", "transpose", "gather", "floor", "abs", "sign", "mul")
"""What indices pass through on the way from where they are computed."""

READ_ELEMENTS = 1 << 16
"""Tensors of more elements than this are not looked into."""

DEPTH = 16
"""How many nodes back the source of indices is looked for."""


def doubts(module: Module, facts: Facts, file: str) -> list[Problem]:
    """One warning a kind, with the first places."""
    baked = [n for n in module.nodes() if _bakes_size(n, facts)]
    lossy = [n for n in module.nodes() if _loses_terms(n)]
    read = [n for n in module.nodes() if n.op in ("nonzero", "range") and facts.is_runtime(n.attrs["count"])]
    found = []
    if read:
        what = f"sizes that only data tells ({len(read)} nodes; {_limit(read[0])})"
        todo = "a device's host waits to read each of them; experts recovered as a block need none, see moec explain"
        found.append(_warning(what, read, todo, file))
    if baked:
        what = "a size of the traced input is baked in where the inputs' sizes are symbols"
        todo = "only the traced size can run; export with dynamic shapes, or with the traced sizes as static ones"
        found.append(_warning(f"{what} ({len(baked)} nodes)", baked, todo, file))
    if lossy:
        what = "rows are written where a sum over rows of equal index seems meant"
        todo = "of rows that share an index only the last one counts, here as in the file; export with reduction='add'"
        found.append(_warning(f"{what} ({len(lossy)} nodes)", lossy, todo, file))
    return found


def _limit(node: Node) -> str:
    """The symbol of the size, and what it is at most: every element counted by ``nonzero``."""
    name, counted = node.attrs["count"], node.operand(0)
    at_most = f" is at most {counted.type.numel()}" if node.op == "nonzero" and counted is not None else ""
    return f"{name}{at_most}" if at_most else f"the first is {name}"


def _warning(what: str, nodes: list[Node], todo: str, file: str) -> Problem:
    places = "; ".join(str(n.origin) for n in nodes[:SHOWN])
    more = f"; and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    return Problem(what, Where(file, node=places + more), todo)


def _named(dim: Dim, facts: Facts) -> bool:
    """Whether a dimension is made of sizes that the inputs name."""
    return isinstance(dim, Expr) and not facts.is_runtime(dim)


def _bakes_size(node: Node, facts: Facts) -> bool:
    if node.op == "reshape":
        given, made = node.operand(0).type, node.result.type
        if given.shape is None or made.shape is None:
            return False
        before, after = given.numel(), made.numel()
        return (_named(before, facts) and isinstance(after, int)) or (isinstance(before, int) and _named(after, facts))
    if "elementwise" in OPS[node.op].traits and len(node.operands) > 1:
        shapes = [v.type.shape for v in node.operands if v is not None and v.type.shape is not None]
        rank = max(map(len, shapes), default=0)
        columns = [[s[i - rank + len(s)] for s in shapes if i - rank + len(s) >= 0] for i in range(rank)]
        return any(_clash(column, facts) for column in columns)
    return False


def _clash(dims: Iterable[Dim], facts: Facts) -> bool:
    """Whether a number other than 1 stands against a size that the inputs name."""
    dims = list(dims)
    return any(isinstance(d, int) and d > 1 for d in dims) and any(_named(d, facts) for d in dims)


def _loses_terms(node: Node) -> bool:
    """Whether a scatter onto zeros writes, without adding, at indices that several rows share: quotients of slots."""
    if node.op not in ("scatter_elements", "scatter_nd") or node.attrs["reduction"] != "none":
        return False
    return _is_zeros(node.operand(0)) and _is_quotient(node.operand(1))


def _is_zeros(value: Value) -> bool:
    node = value.producer
    while node is not None and node.op in ("expand", "reshape"):
        node = node.operand(0).producer
    data = None if node is None else node.attrs.get("value" if node.op == "constant" else "data")
    return isinstance(data, TensorData) and data.size <= READ_ELEMENTS and not data.numpy().any()


def _is_quotient(value: Value) -> bool:
    seen: set[Node] = set()
    front = [value.producer]
    for _ in range(DEPTH):
        nodes = [n for n in front if n is not None and n not in seen]
        if any(n.op == "div" for n in nodes):
            return True
        seen.update(nodes)
        front = [v.producer for n in nodes if n.op in _LAYOUT for v in n.operands if v is not None]
    return False
