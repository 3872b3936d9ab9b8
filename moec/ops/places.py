"""Where values lie: on the device, or on the host after a host step or a read; and ops that do not find theirs.

An op runs on the device unless its declaration says ``host`` or it stands in the body of a host step. There every
operand must lie on the host, except that of a read (``to_host``). On the device an operand may lie on the host only
where the declaration names it (``host_operands``). Constants and sizes lie on both; what is saved stays where it
is. What ``read_start`` sent is in flight: nothing but ``read_wait`` takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moec.ir.graph import Graph, Module, Node, Value
from moec.ops.registry import OPS

Place = str
"""``device``, ``host``, ``both``, or ``flight``."""

_NOT_WEIGHTS = ("constant", "dims", "iota")


def has_host(module: Module) -> bool:
    """Whether anything of the module runs on the host."""
    return any(n.op in OPS and (OPS[n.op].place == "host" or n.op == "swap_out") for n in module.nodes())


def host_functions(module: Module) -> set[str]:
    """The functions that the host runs, as steps or called by them."""
    stack = [n.attrs["fn"] for n in module.nodes() if n.op == "host"]
    found: set[str] = set()
    while stack:
        name = stack.pop()
        if name not in found and name in module.functions:
            found.add(name)
            stack += [f for n in module.functions[name] if n.op in OPS for f in OPS[n.op].functions(n.attrs)]
    return found


def misplaced(module: Module) -> list[tuple[Graph, Node, str]]:
    """The nodes that do not find an operand where they run: their function, and what is wrong. Each node once."""
    if "main" not in module.functions or not has_host(module):
        return []
    walk = _Walk(module)
    walk.function(module.main, ["device"] * len(module.main.inputs), False)
    return list(walk.problems.values())


class _Walk:
    """Follows values through functions; one function is looked at once for each placement of its operands."""

    def __init__(self, module: Module):
        self.module = module
        self.known: dict[tuple[str, tuple[Place, ...], bool], list[Place]] = {}
        self.problems: dict[Node, tuple[Graph, Node, str]] = {}

    def function(self, graph: Graph, places: Sequence[Place], on_host: bool) -> list[Place]:
        """Where the results of a function lie."""
        key = graph.name, tuple(places), on_host
        if key not in self.known:
            self.known[key] = ["both"] * len(graph.outputs)
            at = dict(zip(graph.inputs, places, strict=True))
            for node in graph:
                found = self.node(graph, node, at, on_host)
                at.update(zip(node.results, found, strict=True))
            self.known[key] = [at[v] for v in graph.outputs]
        return self.known[key]

    def node(self, graph: Graph, node: Node, at: dict[Value, Place], on_host: bool) -> Iterable[Place]:
        definition = OPS.get(node.op)
        given = [at.get(v, "both") for v in node.operands if v is not None]
        if definition is None:
            return ["both"] * len(node.results)
        if node.op == "host" or "call" in definition.traits:
            callee = self.module.functions.get(node.attrs["fn"])
            if callee is None or len(callee.inputs) != len(given):
                return ["both"] * len(node.results)
            return self.function(callee, given, on_host or node.op == "host")
        if "flight" in given or node.op == "read_wait":
            self.check_flight(graph, node, given)
        if node.op == "save":
            return given
        if node.op in ("to_host", "read_wait", "swap_out"):
            return ["host"]
        if node.op == "read_start":
            if given == ["host"]:
                self.wrong(graph, node, "read_start reads from the device, and its operand lies on the host")
            return ["flight"]
        if on_host or definition.place == "host":
            self.check_host(graph, node, given, on_host)
            return ["host"] * len(node.results)
        allowed = definition.host_operands
        for operand, v in definition.pairs(node.operands):
            if v is not None and at.get(v) == "host" and operand.name not in allowed:
                name = v.name or operand.name
                self.wrong(graph, node, f"{node.op} runs on the device, and '{name}' lies on the host")
        return ["both" if node.op in _NOT_WEIGHTS else "device"] * len(node.results)

    def check_flight(self, graph: Graph, node: Node, given: Sequence[Place]) -> None:
        """A value in flight is for ``read_wait``, and ``read_wait`` for a value in flight."""
        if node.op != "read_wait":
            self.wrong(graph, node, f"{node.op} takes a value that is on its way to the host: read_wait first")
        elif given != ["flight"] and given != ["both"]:
            self.wrong(graph, node, "read_wait waits for what read_start sent")

    def check_host(self, graph: Graph, node: Node, given: Sequence[Place], on_host: bool) -> None:
        names = [v.name for v in node.operands if v is not None]
        for name, place in zip(names, given, strict=True):
            if place == "device":
                self.wrong(graph, node, f"{node.op} runs on the host, and {_quoted(name)} lies on the device")
        traits = OPS[node.op].traits
        if on_host and (traits & {"collective", "ranked"} or node.op == "to_device"):
            self.wrong(graph, node, f"{node.op} runs on the device, and stands in a host step")

    def wrong(self, graph: Graph, node: Node, what: str) -> None:
        self.problems.setdefault(node, (graph, node, what))


def _quoted(name: str) -> str:
    return f"'{name}'" if name else "its operand"
