"""Handlers by family. Importing this package fills the table."""

from moec.frontend.onnx.nodes import (
    attention,
    cache,
    control,
    conv,
    elementwise,
    experts,
    index,
    matmul,
    norm,
    optional,
    quantised,
    reduce,
    scan,
    sequence,
    shape,
    source,
)

__all__ = [
    "attention",
    "cache",
    "control",
    "conv",
    "elementwise",
    "experts",
    "index",
    "matmul",
    "norm",
    "optional",
    "quantised",
    "reduce",
    "scan",
    "sequence",
    "shape",
    "source",
]
