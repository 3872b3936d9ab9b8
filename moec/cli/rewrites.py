"""``moec explain``, ``moec bisect``, ``moec repro``: which rewrites fired, which nearly did, and which one is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from moec.cli.common import Input, Json, Sizes, print_json, print_table, stage

Passes = Annotated[
    str | None,
    typer.Option(
        "--passes", metavar="A,B{opt=v},...", help="Passes to run instead of the default ones.", show_default=False
    ),
]
Target = Annotated[str, typer.Option("--target", help="The machine that gated rewrites ask for prices.")]


def explain(
    file: Input,
    passes: Passes = None,
    target: Target = "ascend910b1",
    settings: Sizes = None,
    rule: Annotated[
        str | None,
        typer.Option("--rule", metavar="NAME", help="One rule: what it says, and every place.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say, rule by rule, where rewrites fired and where one nearly did: the guard that failed and the node to blame.

    [bold]Examples[/bold]

      moec explain model.onnx
      moec explain model.onnx --rule swiglu-chunked
      moec explain layer.moe --set T=4096 --json
    """
    from moec import driver
    from moec.explain import explain as run
    from moec.passes.base import default_passes, parse_passes
    from moec.sizes import parse_sizes

    chosen = parse_passes(passes) if passes is not None else default_passes()
    entries = run(file, chosen, driver.load_target(target), parse_sizes(settings or ()), stage)
    if rule is not None:
        entries = [e for e in entries if e.rule == rule]
        _describe(rule, bool(entries))
    if as_json:
        print_json([e.json() for e in entries])
        return
    if not entries:
        typer.echo("no rewrite fired or nearly did")
        return
    rows = [(e.spec, e.rule, len(e.applied), len(e.missed)) for e in entries]
    print_table(("pass", "rule", "fired", "near misses"), rows)
    for e in entries:
        _places(e, full=rule is not None)


SHOWN = 3
"""Places of a rule that are printed unless one rule is asked for."""


def _places(entry: Any, full: bool) -> None:
    limit = None if full else SHOWN
    typer.echo(f"\n{entry.rule}")
    for place, count in list(entry.applied.items())[:limit]:
        typer.echo(f"  fired at {place}" + (f" (x{count})" if count > 1 else ""))
    for (reason, place), count in list(entry.missed.items())[:limit]:
        typer.echo(f"  near miss: {reason}" + (f" (x{count})" if count > 1 else ""))
        if place:
            typer.echo(f"    at {place}")
    hidden = 0 if full else max(0, len(entry.applied) - SHOWN) + max(0, len(entry.missed) - SHOWN)
    if hidden:
        typer.echo(f"  and {hidden} more: --rule {entry.rule} shows all")


def _describe(rule: str, seen: bool) -> None:
    from moec.diagnostics import Usage, suggest
    from moec.passes.base import known_passes
    from moec.rewrite.rule import RULES

    known_passes()
    if rule in RULES:
        typer.echo(RULES[rule].text() + "\n")
    elif not seen:
        raise Usage(
            f"no rule '{rule}' fired or nearly did", todo=suggest(rule, RULES) or "`moec explain INPUT` lists them"
        )


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
    from moec.sizes import complete_sizes, parse_sizes
    from moec.sources import read

    chosen = parse_passes(passes) if passes is not None else default_passes()
    with stage(f"reading {file.name}"):
        loaded = read(file)
    sizes = complete_sizes(loaded.module, {**loaded.tune, **parse_sizes(settings or ())})
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
    app.command("explain")(explain)
    app.command("bisect")(bisect)
    app.command("repro")(repro)
