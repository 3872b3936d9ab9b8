"""From a model to a module.

Which operators are known, then node by node in execution order; all problems in one refusal.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx

from moec.diagnostics import Problem, Refusal, Where
from moec.frontend.onnx import nodes
from moec.frontend.onnx.attributes import read_attributes, schema_version
from moec.frontend.onnx.context import Context, Op, Tensor
from moec.frontend.onnx.inputs import input_types
from moec.frontend.onnx.order import NodeView, execution_order, place
from moec.frontend.onnx.read import opsets, read_model
from moec.frontend.onnx.shape_eval import EVALUATORS, Content, evaluate
from moec.frontend.onnx.table import HANDLERS, Entry
from moec.frontend.onnx.tensors import tensor_data
from moec.ir.graph import Graph, Module, Value
from moec.ir.types import TensorType

__all__ = ["import_model", "load_onnx", "nodes"]

MAX_SHOWN = 50
"""Node problems listed one by one in a refusal; the rest are counted."""


def load_onnx(path: str | Path) -> Module:
    """The layer IR of the model in ``path``. Raises Refusal with everything that is wrong with it."""
    path = Path(path)
    return import_model(read_model(path), path.name, path.parent)


def import_model(model: onnx.ModelProto, file: str = "<model>", folder: Path | None = None) -> Module:
    """The layer IR of ``model``.

    ``file`` names it in messages and provenance, ``folder`` is where its external data lies.
    """
    where = Where(file)
    versions = opsets(model, where)
    if model.functions:
        names = ", ".join(sorted({f"{f.domain}.{f.name}" for f in model.functions})[:10])
        raise Refusal(f"model-local functions ({names})", where, "inline them with onnx.inliner.inline_local_functions")
    with _no_collection():
        views = [NodeView(i, n) for i, n in enumerate(model.graph.node)]
        unsupported = _unsupported(views, versions, file)
        if unsupported:
            raise Refusal(unsupported)
        return _Importer(model.graph, views, file, folder, versions).run()


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection meanwhile.

    An import only makes objects that stay, and scanning them over and over costs a third of its time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _unsupported(views: Iterable[NodeView], versions: dict[str, int], file: str) -> list[Problem]:
    """One problem for each operator that has no handler, or none for the version wanted.

    Count, first node, versions.
    """
    seen: dict[tuple[str, str], list[NodeView]] = {}
    for view in views:
        seen.setdefault((view.domain, view.op_type), []).append(view)
    problems = []
    for (domain, op_type), found in seen.items():
        reason = _reason(domain, op_type, versions)
        if reason:
            name = f"{domain}.{op_type}" if domain else op_type
            what = f"operator {name} ({len(found)} nodes, the first is node {found[0].index}): {reason}"
            problems.append(Problem(what, place(file, found[0]), "express it by supported operators"))
    return problems


def _reason(domain: str, op_type: str, versions: dict[str, int]) -> str:
    opset = versions.get(domain)
    if opset is None:
        return f"domain '{domain}' has no opset_import"
    entry = HANDLERS.get((domain, op_type))
    if entry is None:
        return f"not supported (opset {opset} wanted)"
    version = schema_version(op_type, domain, opset)
    if version is None:
        version = opset if domain else entry.last
    if not entry.first <= version <= entry.last:
        return f"opset {opset} wanted, where it has version {version}; versions {entry.first} to {entry.last} are known"
    return ""


class _Importer:
    """The import of one graph."""

    def __init__(
        self, graph: onnx.GraphProto, views: list[NodeView], file: str, folder: Path | None, versions: dict[str, int]
    ):
        self.source, self.views, self.file, self.folder, self.versions = graph, views, file, folder, versions
        self.problems: list[Problem] = []
        self.tensors: dict[str, Tensor | None] = {}
        """What each name stands for; None where its making failed, so that what depends on it is not reported too."""
        module = Module()
        self.context = Context(module, module.add(Graph("main")), file, versions)

    def run(self) -> Module:
        """Import the graph; Refusal with every problem found."""
        self._initializers()
        self._inputs()
        in_order, problems = execution_order(self.views, self.tensors, self.file)
        self.problems += problems
        if not any("cycle" in p.what or "defined twice" in p.what for p in problems):
            for view in in_order:
                self._node(view)
        self._outputs()
        if self.problems:
            shown = self.problems[:MAX_SHOWN]
            if len(self.problems) > MAX_SHOWN:
                shown.append(Problem(f"and {len(self.problems) - MAX_SHOWN} more problems", Where(self.file)))
            raise Refusal(shown)
        return self.context.module

    def _refuse(self, what: str, todo: str = "") -> None:
        self.problems.append(Problem(what, Where(self.file), todo))

    def _initializers(self) -> None:
        for proto in self.source.initializer:
            if proto.name in self.tensors:
                self._refuse(f"initializer '{proto.name}' is defined twice", "give each its own name")
            try:
                data = tensor_data(proto, self.folder)
                self.tensors[proto.name] = Tensor(TensorType(data.dtype, data.shape), data=data, name=proto.name)
            except ValueError as error:
                self.tensors[proto.name] = None
                self._refuse(f"initializer '{proto.name}': {error}", "export the model again with all its weights")
        for sparse in self.source.sparse_initializer:
            self._refuse(f"sparse initializer '{sparse.values.name}' is not supported", "store it dense")

    def _inputs(self) -> None:
        wanted = [v for v in self.source.input if v.name not in self.tensors]
        types, problems = input_types(wanted, self.context.facts)
        for what in problems:
            self._refuse(what)
        for info, type_ in zip(wanted, types, strict=True):
            if info.name in self.tensors:
                self._refuse(f"input '{info.name}' is defined twice", "give each its own name")
            value = None if type_ is None else self.context.graph.add_input(info.name, type_)
            self.tensors[info.name] = None if value is None else Tensor(value.type, value)

    def _node(self, view: NodeView) -> None:
        inputs: list[Tensor | None] = []
        for name in view.inputs:
            tensor = self.tensors.get(name) if name else None
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
            self.problems.append(Problem(what, place(self.file, view)))
            outputs = [None] * len(view.outputs)
        for name, made in zip(view.outputs, outputs, strict=False):
            if name:
                self.tensors[name] = Tensor(made.type, made) if isinstance(made, Value) else made

    def _outputs_of(self, view: NodeView, inputs: list[Tensor | None]) -> Sequence[Tensor | Value | None]:
        opset = self.versions[view.domain]
        attrs = read_attributes(view, self.folder, opset)
        if not view.domain and view.op_type in EVALUATORS:
            contents = _contents(inputs)
            if contents is not None:
                done = evaluate(view.op_type, contents, attrs, self.context.facts, opset)
                if done is not None:
                    return [Tensor(TensorType(c.dtype, c.items.shape), content=c) for c in done]
        entry: Entry = HANDLERS[view.domain, view.op_type]
        made: Any = entry.handler(Op(self.context, view, inputs, attrs, opset))
        results = made if isinstance(made, (list, tuple)) else [made]
        if len(results) < len(view.outputs) and any(view.outputs[len(results) :]):
            raise ValueError(f"{len(view.outputs)} outputs wanted, {len(results)} supported")
        return results

    def _outputs(self) -> None:
        values: list[Value] = []
        names = [v.name for v in self.source.output]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self._refuse(f"output '{name}' is listed twice", "list it once")
        for name in names:
            if name not in self.tensors:
                if not self.problems:
                    self._refuse(
                        f"output '{name}' is no node's output, no input and no initializer", "export the file again"
                    )
                continue
            tensor = self.tensors[name]
            if tensor is not None:
                values.append(self.context.value_of(tensor))
        if not names:
            self._refuse("the graph has no outputs", "export the file again")
        if not self.problems:
            self.context.graph.set_outputs(values, names)


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
