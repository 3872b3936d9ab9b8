"""``moec run``: the emitted kernels on moec's CPU model of the AscendC API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moec.cli.common import stage
from moec.cli.trials import Expect, Inputs, Save, Tolerance, finish


def run(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder that moec compile wrote.", show_default=False)
    ],
    inputs: Inputs,
    expect: Expect = None,
    tolerance: Tolerance = None,
    save: Save = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the compiled layer in numpy as well, every rank of it.")
    ] = False,
) -> None:
    """Build the emitted project with g++ against the CPU model, run it, and compare with stored outputs.

    The model checks as it runs: alignment, buffer and memory bounds, data used before the event that delivers it.
    What it refuses ends the run
    with exit code 3 and a message that names kernel, file and line. Objects are cached (MOEC_CACHE, default
    ~/.cache/moec).

    Where groups of ranks run the layer, all of them run side by side and exchange by moec's own HCCL: input x of rank 3
    is rank3.x, else its part of x where x is sharded, else x; outputs are rank0.y, rank1.y, ... as of moec eval.

    [bold]Examples[/bold]

      moec run build/layer --inputs x.npz
      moec run build/layer --inputs model.npz --expect model.npz
      moec run build/rank --inputs ranks.npz --check
    """
    from moec.execute import Project, reference_of
    from moec.trial import against, trials

    project = Project(folder)
    with stage("building with g++"):
        project.build()
    with stage("running on the CPU model"):
        done = trials(project.run, project.outputs, inputs, expect, tolerance)
    if check:
        with stage("evaluating in numpy"):
            wanted = trials(reference_of(folder, inputs), project.outputs, inputs)
        done = against(done, wanted, project.outputs, tolerance)
    finish(done, project.outputs, save, "run")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("run")(run)
