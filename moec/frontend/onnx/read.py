"""Reading a model file and checking that it is one: everything that can be wrong before a graph is looked at."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]

from moec.diagnostics import Problem, Refusal, Where

MAX_OPSET = 28
"""The newest version of the standard operator set that the handlers were written for (onnx 1.23)."""

STANDARD = ("", "ai.onnx")
"""The two spellings of the standard operator domain."""


def read_model(path: Path) -> onnx.ModelProto:
    """The model in ``path``, its external tensors left on disk; Refusal where there is none that can be read."""
    where = Where(str(path))
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")
        raw = path.read_bytes()
    except OSError as error:
        raise Refusal(f"cannot read the file: {error.strerror or error}", where, "give a readable .onnx file") from None
    try:
        model = onnx.ModelProto.FromString(raw)
    except DecodeError:
        raise Refusal(
            f"not an ONNX model, or cut short: its {len(raw)} bytes are no complete protobuf",
            where,
            "export or copy the file again",
        ) from None
    if not model.HasField("graph"):
        raise Refusal("no graph in this model", where, "export or copy the file again")
    return model


def text(value: str) -> str:
    """A string of the file; Refusal where it is not UTF-8 (protobuf then gives bytes), as only damage makes it."""
    if type(value) is not str:
        raise Refusal(f"a name in the model is not UTF-8 text: {value!r}", todo="export or copy the file again")
    return value


def opsets(model: onnx.ModelProto, where: Where) -> dict[str, int]:
    """Operator set versions by domain ('' for the standard one).

    Refusal where the standard one is missing or too new.
    """
    versions = {"" if o.domain in STANDARD else o.domain: o.version for o in model.opset_import}
    standard = versions.get("")
    if standard is None:
        if any(n.domain in STANDARD for n in model.graph.node):
            raise Refusal("no opset_import for the standard domain", where, "export the file again")
        return versions
    if not 1 <= standard <= MAX_OPSET:
        raise Refusal(
            [
                Problem(
                    f"opset {standard} of the standard domain; 1 to {MAX_OPSET} are known",
                    where,
                    f"export with opset_version={MAX_OPSET} or less, or convert with onnx.version_converter",
                )
            ]
        )
    return versions
