"""``moec bisect``, ``moec repro``: which rewrite is wrong, and a failure replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moec.cli.common import Input, Sizes, stage
from moec.cli.explain import Passes, Target


def bisect(
    file: Input,
    passes: Passes = None,
    target: Target = "ascend910b1",
    settings: Sizes = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="F.repro", help="Write a file that replays the failure.", show_default=False),
    ] = None,
) -> None:
    """Find the first rule application after which the layer no longer computes what it did, by halving.

    The layer is evaluated on the inputs beside it (NAME.npz), or on made-up ones. Exit code 3 where one is found.

    [bold]Example[/bold]

      moec bisect model.onnx --passes canonicalise,my-pass --write wrong.repro
    """
    from moec import driver
    from moec.bisect import bisect as run
    from moec.diagnostics import CheckFailed, Where
    from moec.passes.base import Context, default_passes, parse_passes
    from moec.repro import write as save
    from moec.sizes import parse_sizes
    from moec.sources import read

    chosen = parse_passes(passes) if passes is not None else default_passes()
    with stage(f"reading {file.name}"):
        loaded = read(file)
    sizes = loaded.sizes(parse_sizes(settings or ()))
    with stage("bisecting"):
        found = run(loaded.module, chosen, file, Context(driver.load_target(target), sizes))
    if found is None:
        typer.echo(f"every pass keeps what the layer computes ({len(chosen)} passes)")
        return
    which = f"application {found.index} of {found.total}" if found.index is not None else "the pass as a whole"
    typer.echo(f"pass {found.number} ({found.spec}), {which}:")
    for each in found.applications:
        typer.echo(f"  {each.rule} at {each.origin}" + (f" in function {each.function}" if each.function else ""))
    if write is not None:
        save(found.failure, write)
        typer.echo(f"written: {write} (moec repro {write})")
    raise CheckFailed(found.failure.reason, Where(str(file)), "correct the rule, or leave the pass out with --passes")


def repro(
    file: Annotated[
        Path, typer.Argument(metavar="F.repro", help="What bisect or a failed --check wrote.", show_default=False)
    ],
    target: Target = "ascend910b1",
) -> None:
    """Replay a failure from its one file: exit code 3 while it is there, 0 once it is gone.

    [bold]Example[/bold]

      moec repro wrong.repro
    """
    from moec import driver
    from moec.passes.base import Context
    from moec.repro import replay

    replay(file, Context(driver.load_target(target)))
    typer.echo(f"{file}: the failure is gone")


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("bisect")(bisect)
    app.command("repro")(repro)
