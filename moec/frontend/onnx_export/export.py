"""From a module to a model: the graph, its functions, weights inside or beside the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from moec.diagnostics import Problem, Refusal, Where
from moec.frontend.onnx_export import attention_body, grad_bodies, moe_body
from moec.frontend.onnx_export.bodies import BODIES, body_graph
from moec.frontend.onnx_export.collectives import write_collective
from moec.frontend.onnx_export.control import Control
from moec.frontend.onnx_export.external import External, on_disk
from moec.frontend.onnx_export.grouped import GROUPED
from moec.frontend.onnx_export.kept import needed_opset, write_kept
from moec.frontend.onnx_export.outputs import name_outputs, value_info
from moec.frontend.onnx_export.primitives import FUNCTIONS, SPELLINGS
from moec.frontend.onnx_export.scope import DOMAIN, Scope
from moec.ir.graph import Graph, Module, Node
from moec.ir.symbol import Dim, Expr, substitute, sym, symbols_of
from moec.ops.registry import opdef

__all__ = ["attention_body", "export_onnx", "grad_bodies", "moe_body", "to_onnx"]

OPSET = 21
"""The standard operator set that is written: the newest that all of onnxruntime 1.20 and later run."""

IR_VERSION = 10
"""The file format version that belongs to opset 21."""

EXTERNAL_ABOVE = 1 << 30
"""Weights of more bytes than this in all are written to a file beside the model: a protobuf ends at 2 GiB."""


def export_onnx(module: Module, path: Path) -> None:
    """Write ``module`` to ``path``. Raises Refusal where an op or a size cannot be expressed.

    Weights that lie in files, or that are too many for one protobuf, are written to a file beside the model, piece by
    piece and never all in memory.
    """
    keys = {"constant": "value", "weight": "data"}
    held = [n.attrs[keys[n.op]] for n in module.nodes() if n.op in keys]
    data = [d for d in held if d is not None]
    external = None
    if sum(d.nbytes for d in data) > EXTERNAL_ABOVE or any(on_disk(d) for d in data):
        external = External(path.name + ".data")
    model = to_onnx(module, external)
    if external is not None and external.entries:
        external.write(path.with_name(external.location))
    path.write_bytes(model.SerializeToString(deterministic=True))


def to_onnx(module: Module, external: External | None = None) -> onnx.ModelProto:
    """The model that computes what ``main`` of ``module`` does; weights without data become inputs.

    Large contents go into ``external`` where it is given: then the model refers to its file.
    """
    return _Exporter(module, external).model()


class _Exporter:
    def __init__(self, module: Module, external: External | None):
        self.module, self.external = module, external
        self.functions: list[onnx.FunctionProto] = []
        self.made: dict[Any, tuple[str, list[str]]] = {}
        """Functions by what they compute: name, and the symbols that they want as further inputs."""
        self.stems: dict[str, int] = {}
        """How many functions of each name there are."""
        self.problems: list[Problem] = []
        self.weight_inputs: list[onnx.ValueInfoProto] = []
        self.opset = OPSET
        for n in module.nodes():
            self.opset = needed_opset(n, self.opset) if n.op == "opaque" else self.opset
        self.domains: dict[str, int] = {}
        """Versions of the domains that functions' nodes are of, the standard one and moec's own aside."""
        self.control = Control(module, self.nodes)

    def model(self) -> onnx.ModelProto:
        graph = self.module.main
        scope = Scope(is_function=False)
        scope.external = self.external
        for v in graph.inputs:
            scope.define(v, scope.fresh(v.name))
        reserved = [scope.fresh(name) if name not in scope.names.values() else name for name in graph.output_names]
        self.nodes(graph, scope)
        if self.problems:
            raise Refusal(self.problems)
        outputs = name_outputs(scope, graph, reserved)
        proto = helper.make_graph(
            scope.nodes,
            graph.name,
            [value_info(scope.names[v], v.type) for v in graph.inputs] + self.weight_inputs,
            [value_info(name, v.type) for name, v in zip(outputs, graph.outputs, strict=True)],
            scope.initializers,
        )
        imports = [helper.make_opsetid("", self.opset)]
        if self.functions:
            imports.append(helper.make_opsetid(DOMAIN, 1))
        imports += [helper.make_opsetid(d, v) for d, v in sorted((self.domains | scope.domains).items())]
        return helper.make_model(
            proto, opset_imports=imports, functions=self.functions, ir_version=IR_VERSION, producer_name="moec"
        )

    def nodes(self, graph: Graph, scope: Scope) -> None:
        """Write every node of ``graph`` into ``scope``."""
        for node in graph:
            scope.doc = str(node.origin) if node.origin.sources and not scope.is_function else ""
            try:
                names = self.node(node, scope)
            except ValueError as error:
                self.problems.append(Problem(f"{node.op} cannot be exported: {error}", Where(node=str(node.origin))))
                names = [scope.fresh("missing") for _ in node.results]
            for v, name in zip(node.results, names, strict=True):
                scope.define(v, name)
        scope.doc = ""

    def node(self, node: Node, scope: Scope) -> Sequence[str]:
        """Write one node; its results' names."""
        operands = ["" if v is None else scope[v] for v in node.operands]
        if node.op == "weight":
            return [self.weight(node, scope)]
        if node.op in ("if", "loop", "scan"):
            return self.control(scope, node, operands)
        if node.op == "opaque":
            return write_kept(scope, node, operands, self.opset)
        if "collective" in opdef(node.op).traits:
            return write_collective(scope, node, operands)
        if node.op == "host":
            return self.inline(node, scope, operands)
        if node.op in ("call", "fused"):
            return self.call(node, scope, operands, ("fn", node.attrs["fn"]), node.attrs["fn"])
        if node.op in BODIES or node.op in FUNCTIONS or node.op in GROUPED:
            return self.call(node, scope, operands, (node.op, *_structure(node)), node.op)
        spelling = SPELLINGS.get(node.op)
        if spelling is None:
            raise ValueError(_no_spelling(node))
        while operands and not operands[-1]:
            operands.pop()
        made = spelling(scope, node, operands)
        return [made] if isinstance(made, str) else made

    def weight(self, node: Node, scope: Scope) -> str:
        """An initializer, or a graph input where the weight has no data."""
        name, data = scope.fresh(node.attrs["name"]), node.attrs["data"]
        if data is not None:
            return scope.held(data, name)
        if scope.is_function:
            raise ValueError(f"weight '{name}' without data inside a function")
        self.weight_inputs.append(value_info(name, node.result.type))
        return name

    def call(self, node: Node, scope: Scope, operands: list[str], key: Any, stem: str) -> list[str]:
        """Call the function for ``node``, written the first time it is wanted."""
        if key not in self.made:
            self.stems[stem] = self.stems.get(stem, 0) + 1
            name = stem if self.stems[stem] == 1 else f"{stem}_{self.stems[stem]}"
            self.made[key] = (name, self.function(node, name))
        name, symbols = self.made[key]
        sizes = [scope.dim(Expr((((s,), 1),))) for s in symbols]
        return scope.node(name, [o for o in operands if o] + sizes, len(node.results), domain=DOMAIN)

    def inline(self, node: Node, scope: Scope, operands: list[str]) -> list[str]:
        """The nodes of a host function in place, so that sizes that it reads from data are known behind it."""
        graph = self.module.functions[node.attrs["fn"]]
        for v, name in zip(graph.inputs, operands, strict=True):
            scope.define(v, name)
        self.nodes(graph, scope)
        return [scope[v] for v in graph.outputs]

    def function(self, node: Node, name: str) -> list[str]:
        """Write the function; the symbols that it wants as further inputs."""
        scope = Scope(is_function=True)
        if node.op in ("call", "fused"):
            graph = self.module.functions[node.attrs["fn"]]
            inputs = graph.inputs
            names = [scope.fresh(v.name) for v in inputs]
        else:
            declared = [o.name for o in opdef(node.op).signature.operands]
            given = [(n, v) for n, v in zip(declared, node.operands, strict=False) if v is not None]
            names, inputs = [scope.fresh(n) for n, _ in given], [v for _, v in given]
        if node.op in SPELLINGS or node.op in GROUPED:
            for n, v in zip(names, inputs, strict=True):
                scope.define(v, n)
            outputs = self._spelt(node, scope)
        else:
            if node.op not in ("call", "fused"):
                graph = body_graph(node, declared)
            for n, v in zip(names, graph.inputs, strict=True):
                scope.define(v, n)
            self.nodes(graph, scope)
            reserved = [scope.fresh(o) for o in graph.output_names]
            outputs = name_outputs(scope, graph, reserved)
        made = helper.make_function(
            DOMAIN,
            name,
            names + list(scope.missing.values()),
            outputs,
            scope.nodes,
            [helper.make_opsetid(d, v) for d, v in {"": self.opset, DOMAIN: 1, **scope.domains}.items()],
        )
        self.domains |= scope.domains
        self.functions.append(made)
        return list(scope.missing)

    def _spelt(self, node: Node, scope: Scope) -> list[str]:
        operands = ["" if v is None else scope[v] for v in node.operands]
        if node.op in GROUPED:
            return GROUPED[node.op](scope, node, operands)
        made = SPELLINGS[node.op](scope, node, operands)
        return [made] if isinstance(made, str) else made


def _structure(node: Node) -> tuple[str, ...]:
    """What a function for ``node`` depends on: attributes, and operand types up to the names of their symbols.

    The body computes all sizes from its own inputs, so nodes that differ in those names only share it.
    """
    attrs = repr(sorted(node.attrs.items()))
    types = [None if v is None else v.type for v in node.operands]
    if any(isinstance(a, Expr) for a in node.attrs.values()):
        return attrs, str(types)
    free = dict.fromkeys(s for t in types if t is not None for d in t.shape or () for s in symbols_of(d))
    names: dict[str, Dim] = {s: sym(f"s{i}") for i, s in enumerate(free)}
    shapes = [None if t is None else t.with_shape(tuple(substitute(d, names) for d in t.dims)) for t in types]
    return attrs, str(shapes)


def _no_spelling(node: Node) -> str:
    definition = opdef(node.op)
    if definition.traits & {"collective", "ranked"}:
        return "ONNX knows no groups of ranks"
    if definition.place == "host" or definition.name == "to_device":
        return "ONNX knows no host steps"
    return "it has no ONNX spelling"
