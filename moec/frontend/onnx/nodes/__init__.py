"""Handlers by family. Importing this package fills the table."""

from moec.frontend.onnx.nodes import elementwise, index, matmul, norm, reduce, sequence, shape, source

__all__ = ["elementwise", "index", "matmul", "norm", "reduce", "sequence", "shape", "source"]
