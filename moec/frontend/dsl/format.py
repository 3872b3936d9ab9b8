"""The canonical form of a ``.moe`` text: spaces, indentation and alignment. Lines stay as the writer broke them.

Blocks are indented by four. Lines inside a bracket stand below what follows it, or are indented by four where the
bracket ends its line; further items of a declaration stand below the first; other continued lines are indented by
four. Operators have a space on each side, but none in the square brackets of types, subscripts and lists. The types and
stored names of consecutive declarations, and the comments of consecutive lines, stand below one another. Blank lines
come one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from lark import Token

from moec.frontend.dsl.parse import parse
from moec.frontend.dsl.report import Report
from moec.frontend.dsl.split import BLOCKS, GOES_ON, GRAMMAR, WORDS

INDENT = 4

_OPENS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_CLOSES = set(_OPENS.values())
_TIGHT = {"SUM", "PRODUCT", "POWER"}
_ENDS_OPERAND = {"NAME", "INT", "FLOAT", "STRING", "CONSTANT", "ELLIPSIS", *_CLOSES}
_DECLARES = ("weight", "input")
_LISTS = (*_DECLARES, "output", "use")


@dataclass
class _Line:
    """One line: its tokens and the comment at its end; then its indent and text."""

    tokens: list[Token] = field(default_factory=list)
    comment: str = ""
    indent: int = 0
    text: str = ""
    item: int = 0
    """Characters up to and with the colon where the line is an item of a declaration; else 0."""
    name: int = 0
    """Characters before the ``=`` of such an item; 0 where it has none."""
    word: str = ""
    """The word of its declaration."""


def format_text(text: str, file: str = "<text>") -> str:
    """The canonical form of ``text``; Refusal where a statement cannot be read."""
    report = Report(text.removeprefix("\ufeff"), file)
    parse(report)
    report.raise_if_wrong()
    lines = list(_lines(report.text))
    _Layout(lines).run()
    _align_items(lines)
    _align_comments(lines)
    return "".join(_joined(lines))


def _lines(text: str) -> Iterator[_Line]:
    """The lines of a text as tokens and comments."""
    tokens = list(GRAMMAR.lex(text))
    at = 0
    line = _Line()
    for token in tokens:
        start, end = token.start_pos or 0, token.end_pos or 0
        gap = text[at:start]
        if "#" in gap:
            line.comment = gap[gap.index("#") :].rstrip()
        at = end
        if token.type == "NEWLINE":
            yield line
            line = _Line()
        else:
            line.tokens.append(token)
    gap = text[at:]
    if "#" in gap:
        line.comment = gap[gap.index("#") :].rstrip()
    yield line


@dataclass
class _Open:
    """An open bracket or block: its type, the indent of the lines in it and that of the line which it ends."""

    type: str
    inner: int
    outer: int


class _Layout:
    """Gives each line its indent and its text."""

    def __init__(self, lines: list[_Line]):
        self.lines = lines
        self.open: list[_Open] = []
        self.statement: str = ""
        """The word of the statement that goes on; "" where none does, ``=`` where it has no word."""
        self.below = 0
        """The indent of its further lines."""
        self.before: Token | None = None
        """The last token of the line before."""
        self.word = -1
        """The place in the line of the word that a statement begins with; -1 where there is none."""

    def run(self) -> None:
        for line in self.lines:
            around = self.open[-1] if self.open else None
            goes_on = bool(self.statement) and (around is None or around.type == "BODY")
            line.indent = self.below if goes_on else around.inner if around is not None else 0
            if line.tokens:
                self.line(line)
            else:
                line.text, line.comment = line.comment, ""

    def line(self, line: _Line) -> None:
        if line.tokens[0].type in _CLOSES and self.open:
            line.indent = self.open[-1].outer
        self.word = -1
        parts: list[str] = []
        width = 0
        for i, token in enumerate(line.tokens):
            closed = self.open.pop() if token.type in _CLOSES and self.open else None
            if closed is not None and closed.type == "BODY":
                self.statement = ""
            elif not self.statement:
                self.begin(line, i)
            if i and self.space(line, i):
                parts.append(" ")
                width += 1
            if token.type == "EQUAL" and line.item and not self.inside():
                line.name = width
            parts.append(str(token))
            width += len(token)
            if token.type == "COLON" and not self.inside() and self.statement in _DECLARES and i == self.word + 2:
                line.item, line.word = width, self.statement
            if token.type in _OPENS:
                self.opens(line, i, line.indent + width)
        line.text, self.before = "".join(parts), line.tokens[-1]
        if not self.inside() and line.tokens[-1].type not in GOES_ON:
            self.statement = ""

    def inside(self) -> bool:
        """Whether a bracket that is no block is open."""
        return bool(self.open) and self.open[-1].type != "BODY"

    def begin(self, line: _Line, i: int) -> None:
        """Token i begins a statement."""
        first, rest = line.tokens[i], line.tokens[i + 1 : i + 2]
        named = first.value in WORDS and not (rest and rest[0].type in ("EQUAL", "COMMA"))
        self.statement = str(first) if named else "="
        self.word = i if named else -1
        listed = self.statement in _LISTS and bool(rest)
        self.below = line.indent + (len(first) + 1 if listed else INDENT)

    def opens(self, line: _Line, i: int, width: int) -> None:
        token, ends_line = line.tokens[i], i == len(line.tokens) - 1
        if token.type == "LBRACE" and not self.inside() and self.statement.upper() in BLOCKS:
            outer = self.below - INDENT
            self.open.append(_Open("BODY", outer + INDENT, outer))
            self.statement = ""
            return
        outer = self.open[-1].inner if self.inside() and not ends_line else line.indent
        inner = outer + INDENT if ends_line else width + (token.type == "LBRACE")
        self.open.append(_Open(token.type, inner, outer))

    def space(self, line: _Line, i: int) -> bool:
        """Whether a space stands before token i of the line."""
        kind, last = line.tokens[i].type, line.tokens[i - 1].type
        if i - 1 == self.word:
            return True
        if last in _OPENS or kind in _CLOSES:
            return (last == "LBRACE") != (kind == "RBRACE")
        if kind in ("COMMA", "DOT") or last == "DOT":
            return False
        if last == "COMMA":
            return True
        if "COLON" in (kind, last):
            tight = self.statement == "for" or (self.inside() and self.open[-1].type == "LSQB")
            return not tight and last == "COLON"
        if (kind in ("LPAR", "LSQB") and last in ("NAME", "RPAR", "RSQB")) or self.is_sign(line, i - 1):
            return False
        if (kind in _TIGHT and not self.is_sign(line, i)) or last in _TIGHT:
            return all(o.type != "LSQB" for o in self.open)
        return True

    def is_sign(self, line: _Line, i: int) -> bool:
        """Whether token i is a sign, ``~``, or the ``**`` that spreads a record."""
        token = line.tokens[i]
        if token.type == "NOT":
            return True
        if token.type not in ("SUM", "POWER"):
            return False
        before = line.tokens[i - 1] if i else self.before
        return before is None or before.type not in _ENDS_OPERAND or i - 1 == self.word


def _runs(lines: Sequence[_Line], keys: Sequence[object]) -> Iterator[list[_Line]]:
    """The longest runs of consecutive lines of one key; those of a false one are left out."""
    pairs = zip(lines, keys, strict=True)
    yield from ([line for line, _ in run] for key, run in groupby(pairs, lambda pair: pair[1]) if key)


def _align_items(lines: list[_Line]) -> None:
    """Set the types, and then the stored names, of declarations in consecutive lines below one another."""
    for run in _runs(lines, [line.item and line.word for line in lines]):
        column = max(line.indent + line.item for line in run)
        for line in run:
            _pad(line, line.item, column)
            line.name += column - line.indent - line.item if line.name else 0
    for run in _runs(lines, [line.name and line.word for line in lines]):
        column = max(line.indent + line.name for line in run)
        for line in run:
            _pad(line, line.name, column)


def _pad(line: _Line, at: int, column: int) -> None:
    """Put spaces into the text so that what stands at ``at`` comes to ``column``."""
    line.text = line.text[:at] + " " * (column - line.indent - at) + line.text[at:]


def _align_comments(lines: list[_Line]) -> None:
    for run in _runs(lines, [bool(line.comment and line.tokens) for line in lines]):
        column = max(line.indent + len(line.text) for line in run) + 2
        for line in run:
            _pad(line, len(line.text), column)
            line.text += line.comment


def _joined(lines: Sequence[_Line]) -> Iterator[str]:
    """The lines with single blank ones between, none at the start and the end."""
    blank = False
    some = False
    for line in lines:
        if not line.text:
            blank = some
            continue
        if blank:
            yield "\n"
        yield " " * line.indent + line.text + "\n"
        blank, some = False, True
