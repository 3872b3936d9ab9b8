"""The library: functions, layers and records that many models share, written in the language (``library.moe``).

A file takes what it names in ``use``; nothing of the library is there unasked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.parse import parse
from moec.frontend.dsl.report import Report

PATH = Path(__file__).with_name("library.moe")

FILE = "moec:library.moe"
"""How messages and provenance call it."""


@lru_cache(maxsize=1)
def library() -> tuple[str, tuple[t.Statement, ...]]:
    """The text of the library and its statements."""
    text = PATH.read_text(encoding="utf-8")
    report = Report(text, FILE)
    statements = tuple(replace(s, library=True) if isinstance(s, t.Fn) else s for s in parse(report))
    report.raise_if_wrong()
    return text, statements


def in_library(name: str) -> str:
    """What to do about an unknown name that the library has; the empty string where it has none of the name."""
    made = [s.name for s in library()[1] if isinstance(s, t.Fn)]
    made += [target.text for s in library()[1] if isinstance(s, t.Assign) for target in s.targets]
    return f"take it from the library: use {name}" if name in made else ""
