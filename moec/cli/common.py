"""What commands share: options, progress on stderr, tables on stdout."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

PATIENCE = 1.0
"""Seconds that a stage may take before it is named on a stderr that is no terminal."""

Input = Annotated[
    Path, typer.Argument(metavar="INPUT", help="A .moe, .onnx or .mir file, or a config.json.", show_default=False)
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="DIM=N,...", help="Sizes of symbolic dims, e.g. T=4096.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Show ``name`` on stderr while the block runs: a spinner on a terminal, else one line once it takes longer than
    ``PATIENCE``.
    """
    if sys.stderr.isatty():
        with Console(stderr=True).status(f"{name} ..."):
            yield
        return
    timer = threading.Timer(PATIENCE, lambda: print(f"moec: {name} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def warn(warnings: Iterable[object]) -> None:
    """Print what looks like a mistake in the input to stderr."""
    for warning in warnings:
        print(f"moec: warning: {warning}", file=sys.stderr)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
    """A table on stdout; columns whose cells are all numbers are set right."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, heading in enumerate(headings):
        numeric = bool(rows) and all(_is_number(row[i]) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    console().print(table)


def console() -> Console:
    """The console of stdout: as wide as the terminal, wide enough for a table where there is none. No markup."""
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 160)


def print_json(value: Any) -> None:
    """``value`` as JSON on stdout."""
    typer.echo(json.dumps(value, indent=2))


def _is_number(cell: Any) -> bool:
    return str(cell).replace(",", "").replace(".", "", 1).replace("%", "").strip("-").isdigit() or cell == ""


def _plain(cell: Any) -> Any:
    from rich.text import Text

    return Text(str(cell))
