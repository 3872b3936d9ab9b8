"""Importing repeated layers: the first copy as a function, every copy as a call of it."""

from __future__ import annotations

from collections.abc import Sequence

from moec.frontend.onnx.context import Tensor
from moec.frontend.onnx.graph_import import GraphImporter
from moec.frontend.onnx.order import NodeView
from moec.frontend.onnx.repeats import TEMPLATE, Repeats, find_repeats
from moec.ir.graph import Graph, Value

SHARED_ELEMENTS = 64
"""Constants of at most this many elements belong to the layer where all copies share them; others are operands."""


class Layers:
    """The repeated layers of a graph, imported when its import comes to them."""

    def __init__(self, importer: GraphImporter):
        self.importer = importer
        self.by_start: dict[int, Repeats] | None = None

    def at(self, position: int) -> int:
        """Import the copies that begin at ``position``; the position behind them, or 0 where none do."""
        importer = self.importer
        if self.by_start is None:
            outputs = [v.name for v in importer.source.output]
            self.by_start = {r.start: r for r in find_repeats(importer.order, outputs)}
        repeats = self.by_start.get(position)
        if repeats is None:
            return 0
        layer = Layer(importer, importer.order, repeats)
        if not layer.make():
            return 0
        for copy in range(repeats.copies):
            if not layer.call(copy):
                first = repeats.start + copy * repeats.period
                for view in importer.order[first : first + repeats.period]:
                    importer.run_node(view)
        return repeats.stop


class Layer:
    """A run of nodes as a function: which outside slots are its operands, and which are constants inside."""

    def __init__(self, importer: GraphImporter, views: Sequence[NodeView], repeats: Repeats):
        self.importer, self.repeats = importer, repeats
        base = repeats.start + TEMPLATE * repeats.period
        self.views = views[base : base + repeats.period]
        self.inside: dict[int, Tensor] = {}
        """Slots whose contents every copy shares."""
        self.operands: list[int] = []
        self.graph: Graph | None = None
        self.outputs: list[Value] = []

    def make(self) -> bool:
        """Import a copy as a function, on tensors of the first one's types.

        False, and nothing is left, where it cannot stand on its own.
        """
        importer = self.importer
        tensors = [importer.lookup(name) for name in self.repeats.outside[0]]
        if any(t is None for t in tensors):
            return False
        body = GraphImporter(importer.context.body("layer"), importer.source, views=self.views)
        body.problems = []
        for slot, (name, tensor) in enumerate(zip(self.repeats.outside[TEMPLATE], tensors, strict=True)):
            assert tensor is not None
            if self._shared(slot, tensor):
                self.inside[slot] = tensor
                body.tensors[name] = Tensor(tensor.type, None, tensor.data, tensor.content, tensor.name)
            else:
                self.operands.append(slot)
                body.define_input(name, tensor.type)
        body.run_nodes()
        found = [body.tensors.get(self.views[t].outputs[j]) for t, j in self.repeats.results]
        facts = importer.context.facts
        standing = not body.problems and all(t is not None and t.value is not None for t in found)
        self.outputs = [t.value for t in found if t is not None and t.value is not None]
        if not standing or any(facts.is_runtime(d) for v in self.outputs for d in v.type.shape or ()):
            del importer.context.module.functions[body.context.graph.name]
            return False
        self.graph = body.context.graph
        self.graph.set_outputs(self.outputs, [self.views[t].outputs[j] for t, j in self.repeats.results])
        return True

    def _shared(self, slot: int, tensor: Tensor) -> bool:
        """Whether every copy has these small contents in this slot."""
        if tensor.value is not None and tensor.data is None:
            return False
        small = tensor.data is None or (tensor.data.size <= SHARED_ELEMENTS and not tensor.data.dtype.is_float)
        scalar = tensor.data is not None and tensor.data.size == 1
        if not (small or scalar):
            return False
        others = [self.importer.lookup(names[slot]) for names in self.repeats.outside[1:]]
        return all(o is not None and _same(tensor, o) for o in others)

    def call(self, copy: int) -> bool:
        """A call for one copy; False where its operands are of other types, and then nothing was made."""
        assert self.graph is not None
        importer, names = self.importer, self.repeats.outside[copy]
        tensors = [importer.lookup(names[slot]) for slot in self.operands]
        if any(t is None for t in tensors):
            return False
        given = [t for t in tensors if t is not None]
        if any(t.type != v.type for t, v in zip(given, self.graph.inputs, strict=True)):
            return False
        context = importer.context
        first = self.repeats.start + copy * self.repeats.period
        context.current = importer.order[first]
        operands = [context.value_of(t) for t in given]
        results = context.state("call", operands, {"fn": self.graph.name}, [v.type for v in self.outputs])
        for (t, j), value in zip(self.repeats.results, results, strict=True):
            importer.tensors[importer.order[first + t].outputs[j]] = Tensor(value.type, value)
        return True


def _same(a: Tensor, b: Tensor) -> bool:
    if a.type != b.type:
        return False
    if a.data is not None or b.data is not None:
        return a.data is not None and b.data is not None and a.data == b.data
    if a.content is None or b.content is None:
        return False
    return a.content.items.shape == b.content.items.shape and a.content.dims() == b.content.dims()
