"""``report.html``: one self-contained page (inline style and SVG, nothing fetched) with what a compilation did and
what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from moec.ir.graph import Module
from moec.report.curve import curve
from moec.report.drawing import Drawing, draw
from moec.report.timeline import timeline
from moec.report.trace import PIPES
from moec.target import KernelTime, Schedule


@lru_cache(maxsize=1)
def _environment() -> Environment:
    folder = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda n: f"{n:,}"
    environment.filters["quantity"] = quantity
    environment.filters["duration"] = duration
    environment.filters["bytes"] = binary
    return environment


def quantity(value: float, unit: str) -> str:
    """``1234567`` with unit ``B`` as ``1.23 MB``: three digits and an SI prefix."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if value < 999.5 or prefix == "P":
            return f"{value:.3g} {prefix}{unit}"
        value /= 1000
    raise AssertionError("the loop returns")


def binary(count: float) -> str:
    """A number of bytes with a binary unit, four digits."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def duration(us: float) -> str:
    """Microseconds as text: in milliseconds from a thousand on, four digits."""
    return f"{us:.4g} µs" if us < 999.95 else f"{us / 1000:.4g} ms"


def report(summary: Mapping[str, Any], before: Module, after: Module, schedule: Schedule | None) -> str:
    """The page. ``before`` is the module as imported, ``after`` the one that was lowered."""
    template = _environment().get_template("report.html.j2")
    kernels = schedule.kernels if schedule is not None else ()
    pipes = [p for p in PIPES if any(k.busy.get(p) for k in kernels)]
    ops = sorted({*summary["ops"]["before"], *summary["ops"]["after"]})
    drawings = [("as imported", _drawings(before)), ("after all passes", _drawings(after))]
    memory = summary["memory"]
    return template.render(
        s=summary,
        drawings=drawings,
        widest=max(d.width for _, functions in drawings for _, d in functions),
        timeline=timeline(schedule) if schedule is not None else "",
        kernels=[_row(k, max(x.us for x in kernels)) for k in kernels],
        pipes=pipes,
        ops=[(op, summary["ops"]["before"].get(op, 0), summary["ops"]["after"].get(op, 0)) for op in ops],
        nodes={when: sum(summary["ops"][when].values()) for when in ("before", "after")},
        curve=curve(memory["sweep"], memory["budget_bytes"]) if memory is not None else "",
        last_checks=[c for c in summary["checks"] if c["after"] == summary["checks"][-1]["after"]],
    )


MOST_FUNCTIONS = 12
"""Functions of a module that are drawn, ``main`` first."""


def _drawings(module: Module) -> list[tuple[str, Drawing]]:
    names = sorted(module.functions, key=lambda n: n != "main")
    return [(name, draw(module.functions[name])) for name in names[:MOST_FUNCTIONS]]


def _row(k: KernelTime, longest: float) -> dict[str, Any]:
    return {
        "time": k,
        "share": k.us / longest if longest else 0.0,
        "launch": k.launch_us / k.us if k.us else 0.0,
        "floor": k.floor_us / k.us if k.us else 0.0,
    }
