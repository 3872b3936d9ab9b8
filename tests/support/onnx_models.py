"""Small models for the importer's tests, and running them through moec and through the onnx reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from moec.eval import run
from moec.frontend.onnx import import_model
from moec.ir.graph import Module
from moec.ops.verify import verify

Dims = Sequence[int | str]


def node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attrs: Any) -> onnx.NodeProto:
    """A node; ``domain`` among the attributes is its domain."""
    return helper.make_node(op, list(inputs), list(outputs), name=f"n_{outputs[0]}", **attrs)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Dims]],
    outputs: Sequence[str] = ("y",),
    initializers: Mapping[str, np.ndarray] | None = None,
    opset: int = 21,
    domains: Sequence[tuple[str, int]] = (),
) -> onnx.ModelProto:
    """A model of these nodes; inputs are (TensorProto type, dims); outputs carry no type."""
    infos = [helper.make_tensor_value_info(n, t, list(d)) for n, (t, d) in inputs.items()]
    outs = [onnx.ValueInfoProto(name=n) for n in outputs]
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in (initializers or {}).items()]
    graph = helper.make_graph(list(nodes), "g", infos, outs, held)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def floats(*dims: int | str) -> tuple[int, Dims]:
    return TensorProto.FLOAT, dims


def int64s(*dims: int | str) -> tuple[int, Dims]:
    return TensorProto.INT64, dims


def imported(proto: onnx.ModelProto) -> Module:
    """The model as verified layer IR."""
    module = import_model(proto, "test.onnx")
    verify(module)
    return module


def both(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The outputs of moec and of the reference evaluator."""
    ours = run(imported(proto), feeds)
    theirs = ReferenceEvaluator(proto).run(None, dict(feeds))
    return list(ours.values()), list(theirs)


def agree(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], atol: float = 1e-6) -> None:
    """Assert that moec and the reference evaluator give the same outputs."""
    for ours, theirs in zip(*both(proto, feeds), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), atol=atol, rtol=1e-5)


def stored(path: Path, prefix: str) -> dict[str, np.ndarray]:
    """The arrays of an npz file whose key starts with ``prefix.``, by the rest of the key."""
    with np.load(path) as file:
        return {k[len(prefix) + 1 :]: file[k] for k in file.files if k.startswith(prefix + ".")}
