"""ONNX in: a model file becomes a layer IR module. ``load_onnx(path)`` is the way in."""

from moec.frontend.onnx.importer import import_model, load_onnx

__all__ = ["import_model", "load_onnx"]
