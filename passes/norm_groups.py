"""The nodes of a norm that make one kernel: grown from its statistic over what depends on it and what only it needs."""

from __future__ import annotations

from collections.abc import Iterator

from moec.ir.graph import Graph, Module, Node, Value
from moec.ops.places import host_functions
from moec.ops.rowspace import may_fuse
from moec.passes.base import Result
from moec.passes.effects import called
from moec.passes.fuse_vector import FuseVector, Outliner

STEPS = 8
"""Chains from a statistic to what it is made of, or from a scale to its reciprocal root, are at most this long."""

LIMITS = FuseVector()
"""What a kernel may hold: as in ``fuse-vector``."""


def device_functions(module: Module) -> list[Graph]:
    """The functions that may hold kernels: not the bodies of such, nor what the host runs."""
    bodies = {name for n in module.nodes() if n.op == "fused" for name in called(n)} | host_functions(module)
    return [g for name, g in module.functions.items() if name not in bodies]


def outline_norms(graph: Graph, module: Module, name: str, residual: bool, result: Result) -> None:
    """Make kernels of the norms of one function: with ``residual`` those of a sum that is read elsewhere too, together
    with the sum; otherwise all others, the gradients first, since they are told by the roots that forward made.
    """
    outliner = Outliner(graph, module, LIMITS, result)
    anchors = [n for n in graph if n.op in ("reduce_sum", "reduce_mean") and not residual]
    for anchor in [*anchors, *(n for n in graph if n.op == "rsqrt")]:
        if anchor.graph is not graph or not may_fuse(anchor):
            continue
        core = _statistic(anchor) if anchor.op == "rsqrt" else _scaled_sum(anchor)
        if core is None:
            continue
        total = _residual(core) if anchor.op == "rsqrt" else []
        if residual == bool(total):
            _outline([*total, *core], anchor, outliner, name)


def _outline(core: list[Node], key: Node, outliner: Outliner, name: str) -> None:
    """Make a kernel of the largest group around ``core`` that can be one; nothing where not even the core can."""
    added = list(_grown(core, key, outliner))
    while True:
        if outliner.outline(outliner.sorted([*core, *added]), name) or not added:
            return
        added.pop()


def _grown(core: list[Node], key: Node, outliner: Outliner) -> Iterator[Node]:
    """What belongs to the core besides, nearest first: row-wise nodes that depend on ``key``, and such that only
    members read, or nodes that no kernel of rows could hold (a sum over rows); each so that the whole could still run
    as one.
    """
    members = dict.fromkeys(core)
    after = {key}
    found = True
    while found and len(members) < LIMITS.max_nodes:
        found = False
        for node in [*_readers(after), *_makers(members)]:
            if node in members or not may_fuse(node) or len(members) == LIMITS.max_nodes:
                continue
            reads = _reads(node, after)
            if not reads and not _only_for(node, members):
                continue
            if outliner.convex(outliner.sorted([*members, node])):
                members[node] = None
                if reads:
                    after.add(node)
                found = True
                yield node


def _readers(nodes: set[Node]) -> list[Node]:
    return list(dict.fromkeys(u for n in nodes for v in n.results for u in v.uses))


def _makers(nodes: dict[Node, None]) -> list[Node]:
    found = dict.fromkeys(v.producer for n in nodes for v in n.operands if v is not None)
    return [n for n in found if n is not None]


def _reads(node: Node, nodes: set[Node]) -> bool:
    return any(v is not None and v.producer in nodes for v in node.operands)


def _only_for(node: Node, members: dict[Node, None]) -> bool:
    return all(u in members or not may_fuse(u) for v in node.results for u in v.uses)


def _statistic(root: Node) -> list[Node] | None:
    """The nodes from the squares to the reciprocal root of their mean; None where that is none."""
    chain = [root]
    value = root.operand(0)
    for _ in range(STEPS):
        node = value.producer
        if node is None or not may_fuse(node):
            return None
        chain.append(node)
        if node.op == "mul" and node.operands[0] is node.operands[1]:
            return chain[::-1] if any(n.op in ("reduce_mean", "reduce_sum") for n in chain) else None
        if node.op not in ("add", "reduce_mean", "reduce_sum", "mul", "div"):
            return None
        value = node.operand(0)
    return None


def _residual(core: list[Node]) -> list[Node]:
    """The sum, read elsewhere too, whose norm the core is of, and what lies between (a cast, the row's mean taken off);
    empty where that is no sum.
    """
    inside = set(core)
    found: list[Node] = []
    node = core[0].operand(0).producer
    if node is not None and node.op == "sub" and may_fuse(node):
        mean = node.operand(1).producer
        if mean is None or mean.op != "reduce_mean" or mean.operands[0] is not node.operands[0] or not may_fuse(mean):
            return []
        found = [mean, node]
        node = node.operand(0).producer
    if node is not None and node.op == "cast" and may_fuse(node):
        found = [node, *found]
        node = node.operand(0).producer
    if node is None or node.op != "add" or not may_fuse(node):
        return []
    full = node.result.type
    same = all(v is not None and v.type == full for v in node.operands)
    elsewhere = any(u not in inside and u not in found and not _scales(u, node.result) for u in node.result.uses)
    return [node, *found] if same and elsewhere else []


def _scales(user: Node, value: Value) -> bool:
    """Whether ``user`` multiplies a row by one number of its own: the norm itself."""
    others = [v for v in user.operands if v is not None and v is not value]
    return user.op == "mul" and len(others) == 1 and others[0].type.dims[-1:] == (1,)


def _scaled_sum(total: Node) -> list[Node] | None:
    """The row sum (or mean) of a product and that product, where a reciprocal root of a norm scales what comes of it;
    None where not.
    """
    product = total.operand(0).producer
    if product is None or product.op != "mul" or product.operands[0] is product.operands[1] or not may_fuse(product):
        return None
    frontier = [total]
    for _ in range(STEPS):
        frontier = [u for n in frontier for v in n.results for u in v.uses if may_fuse(u)]
        if any(_is_root(v) for n in frontier for v in n.operands if v is not None):
            return [product, total]
    return None


def _is_root(value: Value) -> bool:
    """Whether a column of numbers comes of a reciprocal root: itself, saved, or a power or product of it."""
    for _ in range(STEPS):
        node = value.producer
        if node is None or value.type.shape is None or value.type.dims[-1:] != (1,):
            return False
        if node.op == "rsqrt":
            return True
        if node.op not in ("save", "cast", "mul", "pow", "reshape"):
            return False
        value = node.operand(0)
    return False
