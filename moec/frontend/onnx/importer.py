"""From a model to a module: which operators are known, then node by node in execution order; all problems in one refusal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx

from moec.diagnostics import Problem, Refusal, Where
from moec.frontend.onnx import nodes
from moec.frontend.onnx.attributes import read_attributes, schema_version
from moec.frontend.onnx.context import Context, Op, Tensor
from moec.frontend.onnx.inputs import input_types
from moec.frontend.onnx.order import execution_order, place
from moec.frontend.onnx.read import STANDARD, opsets, read_model
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
    """The layer IR of ``model``; ``file`` names it in messages and provenance, ``folder`` is where its external data lies."""
    where = Where(file)
    versions = opsets(model, where)
    if model.functions:
        names = ", ".join(sorted({f"{f.domain}.{f.name}" for f in model.functions})[:10])
        raise Refusal(f"model-local functions ({names})", where, "inline them with onnx.inliner.inline_local_functions")
    unsupported = _unsupported(model.graph.node, versions, file)
    if unsupported:
        raise Refusal(unsupported)
    return _Importer(model.graph, file, folder, versions).run()


def _unsupported(all_nodes: Iterable[onnx.NodeProto], versions: dict[str, int], file: str) -> list[Problem]:
    """One problem for each operator that has no handler, or none for the version wanted: count, first node, versions."""
    seen: dict[tuple[str, str], list[int]] = {}
    first: dict[tuple[str, str], onnx.NodeProto] = {}
    for index, node in enumerate(all_nodes):
        key = node.domain, node.op_type
        if key not in seen:
            seen[key], first[key] = [], node
        seen[key].append(index)
    problems = []
    for (domain, op_type), indices in seen.items():
        reason = _reason(domain, op_type, versions)
        if reason:
            name = f"{domain}.{op_type}" if domain else op_type
            what = f"operator {name} ({len(indices)} nodes, the first is node {indices[0]}): {reason}"
            problems.append(Problem(what, place(file, indices[0], first[domain, op_type]), "express it by supported operators"))
    return problems


def _reason(domain: str, op_type: str, versions: dict[str, int]) -> str:
    domain = "" if domain in STANDARD else domain
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

    def __init__(self, graph: onnx.GraphProto, file: str, folder: Path | None, versions: dict[str, int]):
        self.source, self.file, self.folder, self.versions = graph, file, folder, versions
        self.problems: list[Problem] = []
        self.tensors: dict[str, Tensor | None] = {}
        """What each name stands for; None where its making failed, so that what depends on it is not reported too."""
        module = Module()
        self.context = Context(module, module.add(Graph("main")), file, versions)

    def run(self) -> Module:
        """Import the graph; Refusal with every problem found."""
        self._initializers()
        self._inputs()
        nodes_in_order, problems = execution_order(self.source.node, self.tensors, self.file)
        self.problems += problems
        if not any("cycle" in p.what or "defined twice" in p.what for p in problems):
            for index, node in nodes_in_order:
                self._node(index, node)
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

    def _node(self, index: int, node: onnx.NodeProto) -> None:
        inputs: list[Tensor | None] = []
        for name in node.input:
            tensor = self.tensors.get(name) if name else None
            if name and tensor is None:
                self.tensors.update(dict.fromkeys(filter(None, node.output)))
                return
            inputs.append(tensor)
        self.context.at(index, node)
        try:
            outputs = self._outputs_of(node, inputs)
        except (ValueError, KeyError) as error:
            what = f"attribute {error} is missing" if isinstance(error, KeyError) else str(error)
            self.problems.append(Problem(what, place(self.file, index, node)))
            outputs = [None] * len(node.output)
        for name, made in zip(node.output, outputs, strict=False):
            if name:
                self.tensors[name] = made

    def _outputs_of(self, node: onnx.NodeProto, inputs: list[Tensor | None]) -> Sequence[Tensor | None]:
        domain = "" if node.domain in STANDARD else node.domain
        opset = self.versions[domain]
        attrs = read_attributes(node, self.folder, opset) if node.attribute else {}
        if not domain and node.op_type in EVALUATORS:
            contents = _contents(inputs)
            if contents is not None:
                done = evaluate(node.op_type, contents, attrs, self.context.facts, opset)
                if done is not None:
                    return [Tensor(TensorType(c.dtype, c.items.shape), content=c) for c in done]
        entry: Entry = HANDLERS[domain, node.op_type]
        made: Any = entry.handler(Op(self.context, node, inputs, attrs, opset))
        results = made if isinstance(made, (list, tuple)) else [made]
        if len(results) < len([o for o in node.output if o]):
            raise ValueError(f"{len(node.output)} outputs wanted, {len(results)} supported")
        return [Tensor(r.type, r) if isinstance(r, Value) else r for r in results]

    def _outputs(self) -> None:
        values: list[Value] = []
        names = [v.name for v in self.source.output]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self._refuse(f"output '{name}' is listed twice", "list it once")
        for name in names:
            if name not in self.tensors:
                if not self.problems:
                    self._refuse(f"output '{name}' is no node's output, no input and no initializer", "export the file again")
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


