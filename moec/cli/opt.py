"""``moec opt``: passes over IR text, text out."""

from __future__ import annotations

from typing import Annotated

import typer

from moec.cli.common import Input, stage


def opt(
    file: Input,
    passes: Annotated[str, typer.Option("--passes", metavar="A,B{opt=v},...", help="Passes to run, in order.")] = "",
    origins: Annotated[bool, typer.Option("--origins", help="End each line with where its node came from.")] = False,
) -> None:
    """Run passes over a layer and print the IR.

    [bold]Examples[/bold]

      moec opt build/layer/ir/00_import.mir --passes canonicalise,cse,dce
      moec opt model.onnx                                                 just the import
    """
    from moec.driver import load
    from moec.ir.text import print_module
    from moec.passes.base import PassManager

    manager = PassManager.parse(passes)
    with stage(f"reading {file.name}"):
        module = load(file)
    with stage("running passes"):
        manager.run(module)
    typer.echo(print_module(module, origins), nl=False)


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("opt")(opt)
