"""``moec fmt``: the canonical form of ``.moe`` files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help=".moe files.", show_default=False)]


def fmt(
    files: Files,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a file would change.")] = False,
) -> None:
    """Format .moe files in place: spaces, indentation and alignment; comments and line breaks stay.

    [bold]Examples[/bold]

      moec fmt layer.moe
      moec fmt --check examples/*.moe
    """
    from moec.diagnostics import Problem, Refusal, Where
    from moec.frontend.dsl.format import format_text
    from moec.frontend.dsl.load import read_text

    problems: list[Problem] = []
    for file in files:
        try:
            text = read_text(file)
            formatted = format_text(text, str(file))
        except Refusal as refusal:
            problems += refusal.problems
            continue
        if formatted == text:
            continue
        if check:
            problems.append(Problem("not in canonical form", Where(str(file)), f"run moec fmt {file}"))
            continue
        try:
            file.write_text(formatted, encoding="utf-8", newline="\n")
        except OSError as error:
            problems.append(Problem(f"cannot write: {error.strerror}", Where(str(file))))
            continue
        typer.echo(f"formatted {file}")
    if problems:
        raise Refusal(problems)


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("fmt")(fmt)
