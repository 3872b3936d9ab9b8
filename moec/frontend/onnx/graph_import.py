"""One graph, a model's or a subgraph's: node by node in execution order, each by its handler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx

from moec.diagnostics import Problem, Where
from moec.frontend.onnx.attributes import read_attributes, schema_version
from moec.frontend.onnx.context import Context, Op, Tensor
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.order import NodeView, execution_order, place
from moec.frontend.onnx.read import text
from moec.frontend.onnx.shape_eval import EVALUATORS, Content, evaluate
from moec.frontend.onnx.table import HANDLERS
from moec.frontend.onnx.tensors import tensor_data
from moec.frontend.onnx.unknown import keep
from moec.ir.graph import Value
from moec.ir.types import TensorType, UnknownRank


class GraphImporter:
    """The import of ``source`` into ``context``'s function.

    ``parent`` is the import of the graph around a subgraph: names that are not defined here are looked up there. What
    they stand for becomes an operand of the body where it has a function of its own (``captures``), and is used as it
    is where the subgraph is imported into the same function.
    """

    def __init__(
        self,
        context: Context,
        source: onnx.GraphProto,
        parent: GraphImporter | None = None,
        views: Sequence[NodeView] | None = None,
    ):
        self.context, self.source, self.parent = context, source, parent
        self.problems: list[Problem] = [] if parent is None else parent.problems
        self.tensors: dict[str, Tensor | None] = {}
        """What each name stands for; None where its making failed, so that what depends on it is not reported too."""
        self.captures: dict[str, Tensor] = {}
        """Names taken from outside as inputs of this function, and what they are there."""
        self.views = [NodeView(i, n) for i, n in enumerate(source.node)] if views is None else views
        """The nodes; those of ``source`` where no others are given."""
        self.order: Sequence[NodeView] = ()
        """The nodes in execution order."""
        self.detour: Callable[[int], int] | None = None
        """Asked at each position whether it imports what begins there by itself; the position behind that, or 0."""
        if views is None:
            self._initializers()

    def refuse(self, what: str, todo: str = "") -> None:
        self.problems.append(Problem(what, Where(self.context.file), todo))

    def _initializers(self) -> None:
        for proto in self.source.initializer:
            if text(proto.name) in self.tensors:
                self.refuse(f"initializer '{proto.name}' is defined twice", "give each its own name")
            try:
                data = tensor_data(proto, self.context.folder)
                self.tensors[proto.name] = Tensor(TensorType(data.dtype, data.shape), data=data, name=proto.name)
            except ValueError as error:
                self.tensors[proto.name] = None
                self.refuse(f"initializer '{proto.name}': {error}", "export the model again with all its weights")
        for sparse in self.source.sparse_initializer:
            self.refuse(f"sparse initializer '{sparse.values.name}' is not supported", "store it dense")

    def define_input(self, name: str, type_: TensorType | None) -> None:
        """An input of the function; without a type, what depends on it is left out."""
        if name in self.tensors:
            self.refuse(f"input '{name}' is defined twice", "give each its own name")
        value = None if type_ is None else self.context.graph.add_input(name, type_)
        self.tensors[name] = None if value is None else Tensor(value.type, value)

    def lookup(self, name: str) -> Tensor | None:
        """What a name stands for here; None where it is not known or its making failed."""
        if name in self.tensors or self.parent is None:
            return self.tensors.get(name)
        outer = self.parent.lookup(name)
        if outer is None or self.parent.context is self.context:
            return outer
        if outer.value is None or outer.data is not None or outer.content is not None:
            found = Tensor(outer.type, None, outer.data, outer.content, outer.name, outer.parts)
        else:
            self.captures[name] = outer
            value = self.context.graph.add_input(name, outer.type)
            found = Tensor(outer.type, value)
        self.tensors[name] = found
        return found

    def knows(self, name: str) -> bool:
        """Whether a name stands for something here."""
        return name in self.tensors or (self.parent is not None and self.parent.knows(name))

    def run_nodes(self) -> None:
        """Import every node; problems are collected."""
        given: Any = self.tensors if self.parent is None else [*self.tensors, *self._outside()]
        in_order, problems = execution_order(self.views, given, self.context.file)
        self.problems += problems
        if any("cycle" in p.what or "defined twice" in p.what for p in problems):
            return
        self.order = in_order
        position = 0
        while position < len(in_order):
            behind = self.detour(position) if self.detour is not None else 0
            if not behind:
                self.run_node(in_order[position])
            position = behind or position + 1

    def _outside(self) -> list[str]:
        """The names that the nodes read and the graph around defines."""
        assert self.parent is not None
        made = {name for view in self.views for name in view.outputs}
        read = dict.fromkeys(name for view in self.views for name in view.inputs)
        return [n for n in read if n not in made and n not in self.tensors and self.parent.knows(n)]

    def run_node(self, view: NodeView) -> None:
        """Import one node; a problem is collected."""
        inputs: list[Tensor | None] = []
        for name in view.inputs:
            tensor = self.lookup(name) if name else None
            if name and tensor is None:
                self.tensors.update(dict.fromkeys(filter(None, view.outputs)))
                return
            inputs.append(tensor)
        self.context.current = view
        outputs: Sequence[Tensor | Value | None]
        try:
            outputs = self._outputs_of(view, inputs)
        except (ValueError, KeyError) as error:
            what = f"attribute {error} is missing" if isinstance(error, KeyError) else str(error)
            self.problems.append(Problem(what, place(self.context.file, view)))
            outputs = [None] * len(view.outputs)
        for name, made in zip(view.outputs, outputs, strict=False):
            if name:
                self.tensors[name] = Tensor(made.type, made) if isinstance(made, Value) else made

    def _outputs_of(self, view: NodeView, inputs: list[Tensor | None]) -> Sequence[Tensor | Value | None]:
        context = self.context
        opset = context.opsets.get(view.domain)
        if opset is None:
            raise ValueError(f"domain '{view.domain}' has no opset_import")
        reason = _reason(view, opset)
        if reason:
            return keep(self, view, opset, reason)
        attrs = read_attributes(view, context.folder, opset)
        if not view.domain and view.op_type in EVALUATORS:
            contents = _contents(inputs)
            if contents is not None:
                done = evaluate(view.op_type, contents, attrs, context.facts, opset)
                if done is not None:
                    return [Tensor(TensorType(c.dtype, c.items.shape), content=c) for c in done]
        mark = context.graph.last
        try:
            made: Any = HANDLERS[view.domain, view.op_type].handler(Op(context, view, inputs, attrs, opset, self))
            results = made if isinstance(made, (list, tuple)) else [made]
            if len(results) < len(view.outputs) and any(view.outputs[len(results) :]):
                raise NoForm(f"{len(view.outputs)} outputs wanted, {len(results)} supported")
        except (NoForm, UnknownRank) as error:
            context.discard(mark)
            return keep(self, view, opset, str(error))
        return results

    def outputs(self) -> list[Tensor]:
        """What the graph's outputs stand for; problems where one of them stands for nothing."""
        found: list[Tensor] = []
        names = [text(v.name) for v in self.source.output]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self.refuse(f"output '{name}' is listed twice", "list it once")
        failed = bool(self.problems)
        for name in names:
            tensor = self.lookup(name)
            if tensor is not None:
                found.append(tensor)
            elif not self.knows(name) and not failed:
                what = f"output '{name}' is no node's output, no input and no initializer"
                self.refuse(what, "export the file again")
        if not names:
            self.refuse("the graph has no outputs", "export the file again")
        return found


def _reason(view: NodeView, opset: int) -> str:
    """Why the operator has no handler for the version wanted; the empty string where it has."""
    entry = HANDLERS.get((view.domain, view.op_type))
    if entry is None:
        return f"not known (opset {opset} wanted)"
    version = schema_version(view.op_type, view.domain, opset)
    if version is None:
        version = opset if view.domain else entry.last
    if not entry.first <= version <= entry.last:
        return f"opset {opset} wanted, where it has version {version}; versions {entry.first} to {entry.last} are known"
    return ""


def _contents(inputs: list[Tensor | None]) -> list[Content | None] | None:
    """The contents of all given inputs; None where one of them is data, or there is none."""
    found: list[Content | None] = []
    for tensor in inputs:
        if tensor is None:
            found.append(None)
            continue
        content = tensor.content
        if content is None:
            return None
        found.append(content)
    return found if inputs else None
