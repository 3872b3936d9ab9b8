"""From a model to a module: whole files, all problems in one refusal."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnx import inliner

from moec.diagnostics import Problem, Refusal, Where
from moec.frontend.onnx import nodes
from moec.frontend.onnx.context import Context
from moec.frontend.onnx.doubts import doubts
from moec.frontend.onnx.graph_import import GraphImporter
from moec.frontend.onnx.inputs import input_types
from moec.frontend.onnx.layers import Layers
from moec.frontend.onnx.local_functions import inlined_nodes
from moec.frontend.onnx.read import opsets, read_model, text
from moec.frontend.onnx.unknown import unknown_operators
from moec.ir.bulk import collection_paused
from moec.ir.graph import Graph, Module

__all__ = ["Imported", "import_model", "load_onnx", "nodes", "read_onnx"]

MAX_SHOWN = 50
"""Problems listed one by one in a refusal; the rest are counted."""


MAX_INLINED = 2_000_000
"""Nodes of a model once its local functions are inlined: more than any that is exported, few enough to hold."""


@dataclass
class Imported:
    """A model as layer IR, and what its user should know about it: operators kept as they are, sizes baked in."""

    module: Module
    warnings: list[Problem] = field(default_factory=list)


def load_onnx(path: str | Path) -> Module:
    """The layer IR of the model in ``path``. Raises Refusal with everything that is wrong with it."""
    return read_onnx(path).module


def read_onnx(path: str | Path) -> Imported:
    """The layer IR of the model in ``path`` with warnings. Raises Refusal with everything that is wrong with it."""
    path = Path(path)
    return _import(read_model(path), path.name, path.parent)


def import_model(model: onnx.ModelProto, file: str = "<model>", folder: Path | None = None) -> Module:
    """The layer IR of ``model``.

    ``file`` names it in messages and provenance, ``folder`` is where its external data lies.
    """
    return _import(model, file, folder).module


def _import(model: onnx.ModelProto, file: str, folder: Path | None) -> Imported:
    where = Where(file)
    versions = opsets(model, where)
    if model.functions:
        model = _inlined(model, where)
    unknown = unknown_operators(model.graph, versions, file)
    if unknown:
        raise Refusal(unknown)
    with collection_paused():
        module = Module()
        context = Context(module, module.add(Graph("main")), file, versions, folder)
        importer = GraphImporter(context, model.graph)
        _inputs(importer)
        importer.detour = Layers(importer).at
        importer.run_nodes()
        outputs = importer.outputs()
    problems = importer.problems
    if not problems:
        context.graph.set_outputs([context.value_of(t) for t in outputs], [v.name for v in model.graph.output])
    if problems:
        shown = problems[:MAX_SHOWN]
        if len(problems) > MAX_SHOWN:
            shown.append(Problem(f"and {len(problems) - MAX_SHOWN} more problems", where))
        raise Refusal(shown)
    return Imported(module, [*context.kept.warnings(file), *doubts(module, context.facts, file)])


def _inlined(model: onnx.ModelProto, where: Where) -> onnx.ModelProto:
    if inlined_nodes(model) > MAX_INLINED:
        what = f"the model's local functions come to more than {MAX_INLINED:,} nodes where each call is written out"
        raise Refusal(what, where, "call what is inside less often")
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:
        raise Refusal(
            f"the model's local functions cannot be inlined: {error}", where, "export the file again"
        ) from None


def _inputs(importer: GraphImporter) -> None:
    """The model's inputs: those of its graph that no initializer gives."""
    wanted = [v for v in importer.source.input if text(v.name) not in importer.tensors]
    types, problems = input_types(wanted, importer.context.facts)
    for what in problems:
        importer.refuse(what)
    for info, type_ in zip(wanted, types, strict=True):
        importer.define_input(info.name, type_)
