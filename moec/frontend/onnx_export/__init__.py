"""ONNX out: a module becomes a model that onnxruntime runs to the same numbers and Netron opens.

Primitive ops become standard operators. An op without a standard operator (``moe``, ``gating``, ``grouped_matmul``,
...) and a call of a
module function become model-local functions of the domain ``moec`` whose bodies are standard operators, so the graph
stays readable.
"""

from moec.frontend.onnx_export.export import export_onnx, to_onnx

__all__ = ["export_onnx", "to_onnx"]
