"""``moec check``: read and verify, nothing else."""

from __future__ import annotations

import typer

from moec.cli.common import Input, stage, warn


def check(file: Input) -> None:
    """Read a layer, verify it and say what it is; every problem is reported at once.

    [bold]Example[/bold]

      moec check layer.moe
    """
    from moec.sizes import symbol_bounds
    from moec.sources import read

    with stage(f"reading {file.name}"):
        loaded = read(file)
    warn(loaded.warnings)
    module = loaded.module
    main = module.main
    inputs = ", ".join(f"{v.name}: {v.type}" for v in main.inputs)
    outputs = ", ".join(f"{n}: {v.type}" for n, v in zip(main.output_names, main.outputs, strict=True))
    dims = ", ".join(f"{n} in [{low}, {high}]" for n, (low, high) in symbol_bounds(module).items())
    dims += "".join(f", {name} = {dim}" for name, dim in loaded.derived.items()) if dims else ""
    typer.echo(f"{file}: {sum(len(g) for g in module.functions.values())} nodes in {len(module.functions)} function(s)")
    typer.echo(f"inputs: {inputs or 'none'}\noutputs: {outputs or 'none'}\ndims: {dims or 'none'}")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("check")(check)
