"""``moec eval``: run a layer in numpy, the reference that every later stage is held against."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moec.cli.common import Input, Sizes, stage, warn
from moec.cli.trials import Expect, Inputs, Save, Tolerance, finish


def evaluate(
    file: Input,
    inputs: Inputs,
    expect: Expect = None,
    fp64: Annotated[bool, typer.Option("--fp64", help="Compute every float in 64 bits, round nothing.")] = False,
    settings: Sizes = None,
    tolerance: Tolerance = None,
    save: Save = None,
) -> None:
    """Evaluate a layer in numpy and compare with stored outputs.

    The .npz file names inputs [bold]in.NAME[/bold] (a second size: in2.NAME) or plainly NAME; expected outputs are
    out.0, out.1, ... (or
    ort.0, ..., another runtime's) or output names. Weights that a .moe file leaves open are read by name from the
    inputs file. A layer with groups is run for every rank: outputs are rank0.y, rank1.y, ...; inputs are rank0.x, ...,
    or x for all, cut into the ranks' parts where the layer says that it is sharded.

    [bold]Examples[/bold]

      moec eval model.onnx --inputs model.npz --expect model.npz
      moec eval layer.moe --inputs x.npz --fp64 --save y.npz
    """
    from moec import eval as reference
    from moec.arrays import Arrays
    from moec.eval.ranks import output_types
    from moec.inputs import divide
    from moec.sizes import parse_sizes
    from moec.sources import read
    from moec.trial import trials

    sizes = parse_sizes(settings or ())
    with stage(f"reading {file.name}"):
        loaded = read(file)
    warn(loaded.warnings)
    module = loaded.module
    sizes = loaded.given(sizes)
    types = output_types(module, sizes)

    def run(arrays: Arrays) -> Arrays:
        given, weights = divide(module, arrays, sizes, Path(inputs))
        return reference.run(module, given, weights, fp64=fp64, sizes=sizes)

    with stage("evaluating"):
        done = trials(run, types, inputs, expect, tolerance)
    finish(done, types, save, "eval")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("eval")(evaluate)
