"""``moec explain``: rule by rule, where rewrites fired and where one nearly did and why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moec.cli import memory
from moec.cli.common import Input, Json, Sizes, print_json, print_table, stage
from moec.diagnostics import Usage, suggest

if TYPE_CHECKING:
    from moec.explain import Entry
    from moec.passes.base import Pass

SHOWN = 3
"""Places, and reasons, of a rule that are printed unless one rule is asked for."""
LONGEST = 240
"""Characters of a reason that are printed unless one rule is asked for."""
TIDYING = ("cse", "dce", "fold", "inline")
"""Passes whose places are not printed unless asked for: they clear away what others leave."""

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
    train: Annotated[
        bool, typer.Option("--train", help="The rewrites of the joint graph of forward and backward.")
    ] = False,
    loss: Annotated[
        str | None,
        typer.Option("--loss", metavar="OUT+...", help="With --train: outputs to differentiate.", show_default=False),
    ] = None,
    recompute: memory.Recompute = None,
    swap: memory.Swap = None,
    rule: Annotated[
        str | None,
        typer.Option("--rule", metavar="NAME", help="One rule: what it says, and every place.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say, rule by rule, where rewrites fired and where one nearly did: the guard that failed and the node to blame.

    Places are line numbers or node indices in the input, with each node's op and name. A rewrite that would slow the
    layer down on the target at the sizes of --set is a near miss, with both times.

    [bold]Examples[/bold]

      moec explain model.onnx
      moec explain model.onnx --rule silu-glu-chunked
      moec explain layer.moe --set T=4096 --json
      moec explain layer.moe --train --recompute act,norm
    """
    from moec import driver
    from moec.explain import explain as run
    from moec.sizes import parse_sizes

    chosen = _chosen(passes, train, loss, recompute, swap)
    entries = run(file, chosen, driver.load_target(target), parse_sizes(settings or ()), stage)
    idle = [p.name for p in chosen if not any(e.spec == p.spec for e in entries)]
    if rule is not None:
        entries = [e for e in entries if e.rule == rule]
        _describe(rule, bool(entries))
    if as_json:
        print_json([e.json() for e in entries])
        return
    if not entries:
        typer.echo("no rewrite fired or nearly did" if rule is None else f"{rule} neither fired nor nearly did here")
        return
    print_table(("pass", "rule", "fired", "near misses"), [(e.spec, e.rule, e.fired, e.near_misses) for e in entries])
    for e in entries:
        if rule is not None or e.spec.partition("{")[0] not in TIDYING:
            _places(e, full=rule is not None)
    if rule is None and idle:
        typer.echo(f"\nnothing to do for {', '.join(dict.fromkeys(idle))}")


def _chosen(
    passes: str | None, train: bool, loss: str | None, recompute: str | None, swap: str | None
) -> Sequence[Pass]:
    from moec.passes.base import default_passes, parse_passes, train_passes

    decided = memory.Memory(recompute, swap).passes(train, passes is not None)
    if loss is not None and (not train or passes is not None):
        raise Usage("--loss is of the training pipeline", todo="add --train, without --passes")
    if passes is not None:
        if train:
            raise Usage("--train with --passes", todo="put autodiff among the passes")
        return parse_passes(passes)
    return train_passes(f"loss={loss}" if loss else "", decided) if train else default_passes()


def _places(entry: Entry, full: bool) -> None:
    limit = None if full else SHOWN
    hidden = 0
    if not entry.missed and not any(map(str, entry.applied)):
        return
    typer.echo(f"\n{entry.rule} ({entry.spec})")
    for place, count in list(entry.applied.items())[:limit]:
        typer.echo(f"  fired at {place}" + (f" (x{count})" if count > 1 else ""))
    hidden += max(0, len(entry.applied) - SHOWN)
    for reason, at in list(entry.missed.items())[:limit]:
        shown = reason if full or len(reason) <= LONGEST else reason[:LONGEST] + " ..."
        typer.echo(f"  near miss: {shown}")
        for place in list(at)[:limit]:
            if str(place):
                typer.echo(f"    at {place}")
        hidden += max(0, len(at) - SHOWN)
    hidden += sum(map(len, list(entry.missed.values())[SHOWN:]))
    if hidden and not full:
        typer.echo(f"  and {hidden} more: --rule {_quoted(entry.rule)} shows all")


def _quoted(rule: str) -> str:
    return f"'{rule}'" if " " in rule else rule


def _describe(rule: str, seen: bool) -> None:
    from moec.passes.base import known_passes
    from moec.rewrite.rule import RULES

    known_passes()
    if rule in RULES:
        typer.echo(RULES[rule].text() + "\n")
    elif not seen:
        raise Usage(
            f"no rule '{rule}' fired or nearly did", todo=suggest(rule, RULES) or "`moec explain INPUT` lists them"
        )


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("explain")(explain)
