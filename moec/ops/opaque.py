"""An operator that moec does not know, kept as it came."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.data import TensorData
from moec.ops.registry import op

Array = np.ndarray


@op("opaque(xs...: any, *, domain: str, type: str, version: int, proto: tensor) -> any")
class Opaque:
    """An ONNX operator ``domain.type`` of opset ``version`` whose node, serialised, is ``proto`` (u8).

    Passes leave it alone, export writes it back, and the onnx reference evaluator runs it where that knows it.
    Its operands stand for the names that the node reads, those of its subgraphs included; its results' types are stated
    by the node.
    """

    dtype = "xs"
    cost = "composite"
    traits = ("declared", "opaque")
    nondiff = "unknown to moec"

    @staticmethod
    def ref(*xs: Array | None, domain: str, type: str, version: int, proto: TensorData) -> tuple[Any, ...]:
        from moec.ops.foreign import run_foreign

        return run_foreign(xs, domain, type, version, proto.numpy().tobytes())
