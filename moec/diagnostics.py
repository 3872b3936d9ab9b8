"""Refusals: what is wrong, where, and what to do. Every stage that reads user input reports through here.

A ``Problem`` is one thing wrong. A ``Refusal`` is the exception that carries all the problems of a stage; the command
line prints it and exits 1. ``CheckFailed`` is the same for a numeric or structural check of moec's own work (exit 3).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Where:
    """A place in a source: a file with line and column (1-based), or a node of a graph by index and name."""

    file: str = ""
    line: int = 0
    column: int = 0
    text: str = ""
    """The source line itself, shown with a caret under ``column`` where both are known."""
    node: str = ""

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place += f":{self.line}"
            if self.column:
                place += f":{self.column}"
        if self.node:
            place += (": " if place else "") + self.node
        return place


@dataclass(frozen=True)
class Problem:
    """One thing wrong: ``what`` it is, ``where`` it stands, ``todo`` says what the user can do about it."""

    what: str
    where: Where = Where()
    todo: str = ""

    def __str__(self) -> str:
        place = str(self.where)
        lines = [f"{place}: {self.what}" if place else self.what]
        if self.where.text:
            lines.append("    " + self.where.text)
            if self.where.column:
                pad = "".join("\t" if c == "\t" else " " for c in self.where.text[: self.where.column - 1])
                lines.append("    " + pad + "^")
        if self.todo:
            lines.append("  -> " + self.todo)
        return "\n".join(map(shown, lines))


_HIDDEN = dict.fromkeys([*range(9), *range(10, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_HIDDEN = {c: f"\\x{c:02x}" if c < 256 else f"\\u{c:04x}" for c in _HIDDEN}
"""Characters that steer a terminal or turn the direction of text, and how they are shown."""


def shown(line: str) -> str:
    """A line of a message with what its input's names hide made visible."""
    return line.translate(_HIDDEN)


class Diagnosis(Exception):
    """Problems found by a stage, printed all at once."""

    exit_code = 1

    def __init__(self, problems: str | Problem | Iterable[Problem], where: Where | None = None, todo: str = ""):
        if isinstance(problems, str):
            problems = Problem(problems, where or Where(), todo)
        self.problems: Sequence[Problem] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class Refusal(Diagnosis):
    """The input cannot be taken (exit code 1). ``Refusal("what", where, todo)`` or ``Refusal([Problem, ...])``."""


class NoKernel(Refusal):
    """Ops that the target has no kernel for. All that comes before kernels is still good."""


class Usage(Diagnosis):
    """The command was called wrongly (exit code 2)."""

    exit_code = 2


class CheckFailed(Diagnosis):
    """moec's own result did not pass a check (exit code 3)."""

    exit_code = 3


def suggest(name: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` for the closest of ``known``, or the empty string."""
    names = sorted(set(known))
    close = [n for n in names if n.lower() == name.lower()] or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else ""
