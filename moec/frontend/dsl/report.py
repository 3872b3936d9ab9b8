"""What is wrong in a ``.moe`` text, collected as it is found: the file's lines, its problems and its warnings."""

from __future__ import annotations

from typing import NamedTuple

from moec.diagnostics import Problem, Refusal, Where

MAX_PROBLEMS = 200
"""Problems that are shown; a text with more of them is no program with mistakes."""

MAX_LINE = 300
"""Characters of a source line that is still shown with a caret."""


class Span(NamedTuple):
    """A stretch of the source: 1-based ``line`` and ``column`` of its start, and its character range ``start:end``."""

    line: int
    column: int
    start: int = 0
    end: int = 0


def place(problem: Problem) -> tuple[str, int, int]:
    """The key that sorts problems by where they stand in their text."""
    return problem.where.file, problem.where.line, problem.where.column


class Report:
    """Problems and warnings of one source text, each said once, in the order found.

    Those of a text that another one uses (``user``) are collected with that one's.
    """

    def __init__(self, text: str, file: str, user: Report | None = None):
        self.text, self.file = text, file
        self.lines = text.split("\n")
        self.problems: dict[Problem, None] = {} if user is None else user.problems
        self.warnings: dict[Problem, None] = {} if user is None else user.warnings

    def _problem(self, at: Span, what: str, todo: str) -> Problem:
        line = self.lines[at.line - 1] if 0 < at.line <= len(self.lines) else ""
        return Problem(what, Where(self.file, at.line, at.column, line if len(line) <= MAX_LINE else ""), todo)

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
            problems = sorted(self.problems, key=place)
            shown, more = problems[:MAX_PROBLEMS], len(problems) - MAX_PROBLEMS
            if more > 0:
                shown.append(Problem(f"{more} more problems are not shown", problems[MAX_PROBLEMS].where))
            raise Refusal(shown)
