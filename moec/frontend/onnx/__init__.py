"""ONNX in: a model file becomes a layer IR module. ``load_onnx(path)`` is the way in."""

from moec.frontend.onnx.importer import Imported, import_model, load_onnx, read_onnx

__all__ = ["Imported", "import_model", "load_onnx", "read_onnx"]
