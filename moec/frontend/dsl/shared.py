"""The shared layers: functions, layers and records of many models, written in the language (``shared.moe``).

A file takes what it names in ``use``; nothing of them is there unasked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.parse import parse
from moec.frontend.dsl.report import Report

PATH = Path(__file__).with_name("shared.moe")

FILE = "moec:shared.moe"
"""How messages and provenance call it."""


@lru_cache(maxsize=1)
def shared_layers() -> tuple[str, tuple[t.Statement, ...]]:
    """Their text and its statements."""
    text = PATH.read_text(encoding="utf-8")
    report = Report(text, FILE)
    statements = tuple(replace(s, shared=True) if isinstance(s, t.Fn) else s for s in parse(report))
    report.raise_if_wrong()
    return text, statements


def among_shared(name: str) -> str:
    """What to do about an unknown name that is one of theirs; the empty string where it is none."""
    made = [s.name for s in shared_layers()[1] if isinstance(s, t.Fn)]
    made += [target.text for s in shared_layers()[1] if isinstance(s, t.Assign) for target in s.targets]
    return f"take it from the shared layers: use {name}" if name in made else ""
