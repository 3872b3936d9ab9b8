"""``moec estimate``: the modelled time of one op, or of every row of a table of operators."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from moec.cli.common import print_json
from moec.cli.estimate_table import estimate_rows
from moec.cli.estimate_tile import estimate_tile
from moec.diagnostics import Problem, Refusal, Usage
from moec.ir.types import DType, TensorType, dtype


def estimate(
    op: Annotated[str | None, typer.Argument(help="An op: `moec ops` lists them.", show_default=False)] = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="AxB[,CxD...]", help="Operand shapes in order.", show_default=False),
    ] = None,
    dtypes: Annotated[
        str, typer.Option("--dtype", metavar="D[,D...]", help="One dtype for all operands, or one each.")
    ] = "bf16",
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attr", metavar="NAME=VALUE", help="An attribute of the op; a flag is off unless given."),
    ] = None,
    target: Annotated[str, typer.Option("--target", help="The machine: `moec targets` lists them.")] = "ascend910b1",
    as_json: Annotated[bool, typer.Option("--json", help="JSON also on a terminal.")] = False,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table", metavar="IN.csv", help="A table of vendor operators instead of an op.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="OUT.csv", help="Where the table goes; else stdout.", show_default=False),
    ] = None,
    tile: Annotated[
        str | None,
        typer.Option("--tile", metavar="KEY=VALUE,...", help="Replay a tiling of a matmul.", show_default=False),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="OUT.csv", help="With --tile: instructions of the slowest core.", show_default=False
        ),
    ] = None,
    chip_as: Annotated[
        list[str] | None,
        typer.Option(
            "--chip-as", metavar="CLASS=MACHINE", help="The machine for a chip of the table.", show_default=False
        ),
    ] = None,
) -> None:
    """Print the time of one op on a modelled NPU, with its band: a table on a terminal, else JSON.

    An op that moec has a kernel for is run by the cycle model, any other is estimated by what it must move and compute;
    "model" says which.

    With [bold]--table[/bold]: a CSV with the columns chip, op, input_shapes and, where known, output_shapes, dtypes,
    formats, block_dim and freq_mhz, as the vendor's profiler has them; separated by commas, semicolons, tabs or bars.
    Every row comes back in its place with predicted_us, low_us, high_us (nine of ten measurements lie between),
    bound_by, a reason where there is no estimate, and what was assumed where there is one. --chip-as "*=MACHINE" stands
    for every chip that is like no machine, and for a table without the column.

    With [bold]--tile[/bold]: a matmul of sizes M,N,K by the tiling given, base=MxNxK of one Mmad and, where they differ
    from the defaults, l1=KxK buffers=1|2 l0c=1|2 cores=N split=MxN panel=N order=columns|diagonal stagger=yes unit=yes
    bypass=a|b|ab b=nk|kn; --trace writes its instructions as CSV.

    [bold]Examples[/bold]

      moec estimate matmul --shape 8192,8192,8192 --dtype f16 --tile base=128x256x64,l1=512x256,cores=24,split=2048x1536
      moec estimate matmul --shape 4096x7680,7680x2048 --dtype bf16
      moec estimate softmax --shape 4096x256 --dtype f32 --attr axis=1 --target ascend910b3
      moec estimate --table ops.csv -o estimates.csv --chip-as "my card=ascend910b2"
    """
    if table is not None:
        if op is not None or shapes:
            raise Usage("--table takes its ops from the file", todo="leave out the op and --shape, or --table")
        estimate_rows(table, out, chip_as or ())
        return
    if op is None or not shapes:
        raise Usage("an op and its shapes are missing", todo="moec estimate OP --shape AxB, or --table IN.csv")
    if out is not None or chip_as:
        raise Usage("--out and --chip-as belong to --table", todo="give --table, or leave them out")
    if tile is not None:
        estimate_tile(
            op, [n for text in shapes for s in _shapes(text) for n in s], dtypes, tile, target, trace, as_json
        )
        return
    if trace is not None:
        raise Usage("--trace belongs to --tile", todo="give --tile, or leave it out")
    _estimate_op(op, shapes, dtypes, attributes or (), target, as_json)


def _estimate_op(
    op: str, shapes: Sequence[str], dtypes: str, attributes: Sequence[str], target: str, as_json: bool
) -> None:
    from moec.driver import load_target
    from moec.ops.registry import opdef

    try:
        definition = opdef(op)
        operands = _operands(shapes, dtypes)
        kinds = {name: attr.kind for name, attr in definition.attrs.items()}
        flags = {name: False for name, kind in kinds.items() if kind == "bool"}
        attrs = definition.complete(flags | _attributes(attributes, kinds))
        definition.infer(operands, attrs)
    except ValueError as error:
        raise Refusal(str(error), todo="`moec ops` lists ops, operands and attributes") from None
    answer = _answer(op, operands, attrs, target, load_target(target).estimate(op, operands, attrs, {}))
    if as_json or not sys.stdout.isatty():
        print_json(answer)
    else:
        _print_answer(answer)


def _print_answer(answer: Mapping[str, Any]) -> None:
    """One op for people: what was asked, time and band, what limits it, pipes."""
    typer.echo(f"{answer['op']}({', '.join(answer['operands'])}) on {answer['target']}")
    band = f"   {answer['low_us']:.2f} to {answer['high_us']:.2f}, confidence {answer['confidence']}"
    lines = [
        ("time", f"{answer['us']:.2f} us" + (band if answer["high_us"] else "")),
        ("launch", f"{answer['launch_us']:.2f} us"),
        ("at least", f"{answer['floor_us']:.2f} us"),
        ("limited by", answer["bound"]),
        ("cores", f"{answer['blocks']} {answer['core']}"),
        ("moves", f"{answer['bytes']:,} bytes, {answer['flops']:,} FLOP"),
        ("pipes", ", ".join(f"{pipe} {share:.0%}" for pipe, share in answer["busy"].items() if share >= 0.005)),
        ("model", answer["model"]),
    ]
    for name, value in lines:
        typer.echo(f"  {name:<11} {value}")


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
    extra = {"launch_us": round(time.launch_us, 4), "busy": busy, "model": time.model}
    band = {"low_us": round(time.low_us, 4), "high_us": round(time.high_us, 4), "confidence": time.confidence}
    return asked | kernel_entry(time) | band | extra


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
        if not all(d.isascii() and d.isdecimal() and len(d) < 20 for d in dims):
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
