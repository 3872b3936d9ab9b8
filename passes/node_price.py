"""What the nodes of a module take on the two timelines, as a target says: ``moec.timeline.build.Prices`` of a target.

Device times come from ``Target.estimate``, host times from ``Target.host``. The host issues a kernel for ``op`` (one
operator through a framework) or, with ``compiled``, for ``launch`` (a program that only launches). A read is split as
its parts are called: the copy is put on a stream (``copy``), the host is woken (``sync``), and what is left of ``read``
is the copy itself.

No source gives what a host step takes. Assumed here: 2 us for each op of its body, 1 ns for each element of each
result, and log2(n) times that for a sort.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from moec.ir.graph import Module, Node, Value
from moec.ir.symbol import Expr, evaluate, symbols_of
from moec.ir.text import print_graph
from moec.ir.types import TensorType
from moec.ops.registry import OPS
from moec.passes.base import Context
from moec.passes.price import price, workspace
from moec.target import Target
from moec.timeline.balance import balanced_sizes
from moec.timeline.model import Machine

STEP_OP_US = 2.0
STEP_ELEMENT_US = 0.001
NODE_RANKS = 8
"""Ranks whose exchanges stay within a node of an Atlas A2 server; a group that spans more has the network to itself."""
QUEUE_DEPTH = 1024
"""Assumed: tasks that a stream of the runtime holds."""


_ASKED: WeakKeyDictionary[Any, dict[Any, float | None]] = WeakKeyDictionary()
"""What each target has been asked already: a kernel is simulated once."""


class TargetPrices:
    """Prices of a module's nodes on ``target``; sizes that data decides are those of a balanced load.

    ``unpriced`` lists the ops that the target cannot time, each once; they count as taking no time on the device.
    """

    def __init__(self, module: Module, target: Target, sizes: Mapping[str, int], compiled: bool = False):
        self.module, self.target = module, target
        self.sizes = balanced_sizes(module, sizes)
        self.context = Context(target, self.sizes)
        self.call = "launch" if compiled else "op"
        self.unpriced: dict[str, None] = {}
        self._known = _ASKED.setdefault(target, {})

    def machine(self) -> Machine:
        """The timeline's constants."""
        return Machine(depth=QUEUE_DEPTH, wake_us=self.target.host("sync"))

    def calls(self) -> dict[str, float]:
        """The host calls that prices are made of, with their microseconds."""
        return {c: self.target.host(c) for c in (self.call, "collective", "read", "copy", "sync", "event")}

    def device(self, node: Node) -> float:
        if node.op in ("to_host", "read_start"):
            return self.target.host("read") - self.target.host("copy") - self.target.host("sync")
        if node.op == "to_device":
            return self.target.host("copy")
        body = print_graph(self.module.functions[node.attrs["fn"]]) if node.op == "fused" else ""
        key = node.op, tuple(self._type(v) for v in node.operands), self._attrs(node), body
        if key not in self._known:
            self._known[key] = self._fused(node) if node.op == "fused" else price([node], self.context)
        found = self._known[key]
        if found is None:
            self.unpriced[node.op] = None
        return found or 0.0

    def workspace(self, node: Node) -> int:
        """Bytes that a node's kernels need besides its operands and results; a vector kernel needs none."""
        return 0 if node.op == "fused" else workspace(node, self.context)

    def _fused(self, node: Node) -> float | None:
        """The price of a vector kernel: of its body, at the sizes that its operands give."""
        body = self.module.functions[node.attrs["fn"]]
        sizes = dict(self.sizes)
        for parameter, v in zip(body.inputs, node.operands, strict=True):
            for wanted, given in zip(
                parameter.type.shape or (), v.type.shape or () if v is not None else (), strict=False
            ):
                if str(wanted).isidentifier() and all(s in self.sizes for s in symbols_of(given)):
                    sizes[str(wanted)] = evaluate(given, self.sizes)
        return price(list(body), Context(self.target, sizes))

    def issue(self, node: Node) -> float:
        host = self.target.host
        if node.op == "to_host":
            return host("copy")
        if node.op == "read_start":
            return host("copy") + host("event")
        if node.op == "read_wait":
            return host("sync")
        if node.op == "to_device":
            return host("copy")
        return host("collective" if "collective" in OPS[node.op].traits else self.call)

    def step(self, node: Node) -> float:
        total = 0.0
        for inner in self.module.functions[node.attrs["fn"]]:
            if OPS[inner.op].traits.isdisjoint(("view", "source")) or inner.op == "iota":
                elements: float = sum(self._elements(v) for v in inner.results)
                if inner.op in ("argsort", "topk"):
                    elements *= math.log2(max(2, elements))
                total += STEP_OP_US + STEP_ELEMENT_US * elements
        return total

    def moved(self, node: Node) -> int:
        if "collective" not in OPS[node.op].traits and node.op not in ("to_host", "read_start", "to_device"):
            return 0
        v = node.operand(0)
        return self._elements(v) * v.type.dtype.bits // 8

    def link(self, node: Node) -> str:
        group = node.attrs["group"].at(self.sizes)
        return "within a node" if group.size * group.stride <= NODE_RANKS else "between nodes"

    def _elements(self, value: Value) -> int:
        if value.type.shape is None:
            return 0
        return evaluate(value.type.numel(), self.sizes)

    def _type(self, value: Value | None) -> TensorType | None:
        if value is None or value.type.shape is None:
            return None if value is None else value.type
        return value.type.with_shape(tuple(self._number(d) for d in value.type.dims))

    def _number(self, dim: Any) -> Any:
        known = isinstance(dim, Expr) and all(s in self.sizes for s in symbols_of(dim))
        return evaluate(dim, self.sizes) if known else dim

    def _attrs(self, node: Node) -> str:
        return repr([(k, self._number(v)) for k, v in node.attrs.items()])
