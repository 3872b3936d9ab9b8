"""What is wrong in a ``.moe`` text, collected as it is found: the file's lines, its problems and its warnings."""

from __future__ import annotations

from typing import NamedTuple

from moec.diagnostics import Problem, Refusal, Where


class Span(NamedTuple):
    """A stretch of the source: 1-based ``line`` and ``column`` of its start, and its character range ``start:end``."""

    line: int
    column: int
    start: int = 0
    end: int = 0


class Report:
    """Problems and warnings of one source text, each said once, in the order found."""

    def __init__(self, text: str, file: str):
        self.text, self.file = text, file
        self.lines = text.split("\n")
        self.problems: dict[Problem, None] = {}
        self.warnings: dict[Problem, None] = {}

    def _problem(self, at: Span, what: str, todo: str) -> Problem:
        line = self.lines[at.line - 1] if 0 < at.line <= len(self.lines) else ""
        return Problem(what, Where(self.file, at.line, at.column, line), todo)

    def wrong(self, at: Span, what: str, todo: str = "") -> None:
        """Something that makes the text no program."""
        self.problems.setdefault(self._problem(at, what, todo))

    def warn(self, at: Span, what: str, todo: str = "") -> None:
        """Something that the writer probably did not mean."""
        self.warnings.setdefault(self._problem(at, what, todo))

    def source(self, at: Span) -> str:
        """The text of a stretch."""
        return self.text[at.start : at.end]

    def raise_if_wrong(self) -> None:
        """Raise a Refusal with every problem, in the order of the text, where there is one."""
        if self.problems:
            raise Refusal(sorted(self.problems, key=lambda p: (p.where.line, p.where.column)))
