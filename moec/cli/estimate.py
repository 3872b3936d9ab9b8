"""``moec estimate``: the modelled time of one op as one kernel, as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from moec.cli.common import print_json
from moec.diagnostics import Problem, Refusal, Usage
from moec.ir.types import DType, TensorType, dtype


def estimate(
    op: Annotated[str, typer.Argument(help="An op: `moec ops` lists them.", show_default=False)],
    shapes: Annotated[
        list[str],
        typer.Option("--shape", metavar="AxB[,CxD...]", help="Operand shapes in order.", show_default=False),
    ],
    dtypes: Annotated[
        str, typer.Option("--dtype", metavar="D[,D...]", help="One dtype for all operands, or one each.")
    ] = "bf16",
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attr", metavar="NAME=VALUE", help="An attribute of the op; a flag is off unless given."),
    ] = None,
    target: Annotated[str, typer.Option("--target", help="The machine: `moec targets` lists them.")] = "ascend910b1",
) -> None:
    """Print cycles and microseconds of one op on a modelled NPU, as JSON.

    [bold]Examples[/bold]

      moec estimate matmul --shape 4096x7680,7680x2048 --dtype bf16
      moec estimate softmax --shape 4096x256 --dtype f32 --attr axis=1 --target ascend910b3
    """
    from moec.driver import load_target
    from moec.ops.registry import opdef

    try:
        definition = opdef(op)
        operands = _operands(shapes, dtypes)
        kinds = {name: attr.kind for name, attr in definition.attrs.items()}
        flags = {name: False for name, kind in kinds.items() if kind == "bool"}
        attrs = definition.complete(flags | _attributes(attributes or (), kinds))
        definition.infer(operands, attrs)
    except ValueError as error:
        raise Refusal(str(error), todo="`moec ops` lists ops, operands and attributes") from None
    time = load_target(target).estimate(op, operands, attrs, {})
    print_json(_answer(op, operands, attrs, target, time))


def _answer(
    op: str, operands: Sequence[TensorType], attrs: Mapping[str, Any], target: str, time: Any
) -> dict[str, Any]:
    from moec.report.summary import kernel_entry

    busy = {pipe: round(share, 4) for pipe, share in time.busy.items()}
    asked = {
        "op": op,
        "operands": [str(t) for t in operands],
        "attrs": {k: _json(v) for k, v in attrs.items()},
        "target": target,
    }
    return asked | kernel_entry(time) | {"launch_us": round(time.launch_us, 4), "busy": busy, "model": time.model}


def _json(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _operands(shapes: Sequence[str], dtypes: str) -> list[TensorType]:
    parts = [p for text in shapes for p in _shapes(text)]
    names = dtypes.split(",")
    if len(names) == 1:
        names *= len(parts)
    if len(names) != len(parts):
        raise Usage(f"--dtype: {len(names)} dtypes for {len(parts)} shapes", todo="give one for all, or one each")
    elements: list[DType] = [dtype(n.strip()) for n in names]
    return [TensorType(d, s) for d, s in zip(elements, parts, strict=True)]


def _shapes(text: str) -> list[tuple[int, ...]]:
    """``4096x7680,7680x2048`` is two shapes; ``4096,7680`` and ``[4096, 7680]`` are one."""
    parts = text.split(",") if "x" in text else [text.strip("[]")]
    result = []
    for part in parts:
        dims = [d for d in re.split(r"[x,\s]+", part.strip()) if d]
        if not all(d.isdigit() for d in dims):
            raise Usage(Problem(f"--shape: '{part}' is no shape", todo="write 4096x7680"))
        result.append(tuple(map(int, dims)))
    return result


def _attributes(settings: Sequence[str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The attributes that ``NAME=VALUE`` settings give."""
    attrs: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise Usage(f"--attr: '{setting}' is no NAME=VALUE")
        attrs[name] = _attribute(value, kinds.get(name, ""), setting)
    return attrs


def _attribute(text: str, kind: str, setting: str) -> Any:
    """A value as a shell has it: strings without quotes, ``f32`` for a dtype, ``1`` for a float, ``1,0`` for a list."""
    from moec.ir.attrs import AttrReader

    if kind == "str":
        return text
    if kind == "dtype" and text != "none":
        return dtype(text.removeprefix("!"))
    if kind.endswith("s") and text != "none" and not text.startswith("["):
        text = f"[{text}]"
    reader = AttrReader(text, 0, {})
    value = reader.value()
    reader.spaces()
    if reader.at < len(text):
        raise Usage(f"--attr: '{setting}' has '{text[reader.at :]}' after its value")
    return float(value) if kind == "float" and type(value) is int else value


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("estimate")(estimate)
