"""Cutting a text into statements, so that an error in one costs only that one.

A statement ends at a line's end unless a bracket is open or the line ends in an operator, a comma or ``=``. ``{`` after
the head of a block statement (``BLOCKS``) opens a block of statements; anywhere else it opens a record of attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lark import Lark, Token

from moec.frontend.dsl.report import Report, Span

WORDS = ("use", "dim", "group", "input", "weight", "output", "return", "fn", "layer", "for", "host")
"""Words that begin a statement. A name may be spelt like one; ``weight = x`` assigns."""

BLOCKS = ("FN", "LAYER", "FOR", "HOST")
"""Statements that have a body."""

TOP_BLOCKS = {"FN": "a function", "LAYER": "a layer"}
"""Statements with a body that stand at the top of a file only, and how messages call them."""

MAX_BLOCKS = 8
"""Blocks inside one another; deeper nesting is refused."""

MAX_BRACKETS = 64
"""Open brackets at one place; deeper nesting is refused."""

_CLOSERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_SIGNS = {"RPAR": ")", "RSQB": "]", "RBRACE": "}"}

GOES_ON = {"COMMA", "EQUAL", "ARROW", "SUM", "PRODUCT", "POWER", "COMPARE", "OR", "AND", "NOT"}
"""Tokens after which a statement goes on in the next line."""


class _Lines:
    """Keeps line ends and unreadable characters in the token stream."""

    always_accept = ("NEWLINE", "BAD")

    @staticmethod
    def process(stream: Iterator[Token]) -> Iterator[Token]:
        return stream


GRAMMAR = Lark(
    Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8"),
    parser="lalr",
    lexer="basic",
    propagate_positions=True,
    maybe_placeholders=True,
    postlex=_Lines(),
)


@dataclass
class Chunk:
    """The tokens of one statement; ``body`` holds the statements of its block. ``broken`` ones have been reported."""

    tokens: list[Token] = field(default_factory=list)
    body: list[Chunk] | None = None
    broken: bool = False


def span(token: Token) -> Span:
    """Where a token stands."""
    return Span(token.line or 1, token.column or 1, token.start_pos or 0, token.end_pos or 0)


class _Splitter:
    def __init__(self, report: Report):
        self.report = report
        self.top: list[Chunk] = []
        self.blocks: list[Chunk | None] = []
        """The blocks that are open, outermost first; None for one that was refused."""
        self.chunk = Chunk()
        self.open: list[Token] = []

    def run(self, tokens: list[Token]) -> list[Chunk]:
        for i, token in enumerate(tokens):
            following = tokens[i + 1] if i + 1 < len(tokens) else None
            if token.type == "NEWLINE":
                self.newline()
            elif token.type in _CLOSERS:
                self.opens(token)
            elif token.type in _SIGNS:
                self.closes(token)
            elif token.type == "BAD":
                self.bad(token)
            else:
                self.other(token, following, i == 0 or tokens[i - 1].type == "NEWLINE")
        self.unclosed()
        self.flush()
        if self.blocks and self.blocks[0] is not None:
            self.report.wrong(
                span(self.blocks[0].tokens[-1]), "this block is not closed", "add '}' after its last statement"
            )
        return self.top

    def flush(self) -> None:
        if self.chunk.tokens:
            self.statements().append(self.chunk)
        self.chunk = Chunk()
        self.open = []

    def statements(self) -> list[Chunk]:
        for block in reversed(self.blocks):
            if block is not None and block.body is not None:
                return block.body
        return self.top

    def newline(self) -> None:
        tokens = self.chunk.tokens
        if not self.open and not (tokens and tokens[-1].type in GOES_ON):
            self.flush()

    def opens(self, token: Token) -> None:
        tokens = self.chunk.tokens
        if token.type == "LBRACE" and not self.open and tokens and tokens[0].type in BLOCKS:
            self.begin_block(token)
            return
        tokens.append(token)
        self.open.append(token)
        if len(self.open) == MAX_BRACKETS + 1:
            self.broken(
                token,
                f"brackets are nested deeper than {MAX_BRACKETS}",
                "name the inner parts in statements of their own",
            )

    def begin_block(self, token: Token) -> None:
        self.chunk.tokens.append(Token.new_borrow_pos("BODY", "{", token))
        word = self.chunk.tokens[0].type
        if self.blocks and word in TOP_BLOCKS:
            around = next((TOP_BLOCKS.get(b.tokens[0].type) for b in self.blocks if b is not None), None)
            inside = around.replace("a ", "another ") if around == TOP_BLOCKS[word] else around or "a block"
            self.broken(token, f"{TOP_BLOCKS[word]} stands inside {inside}", "write it at the top of the file")
        elif len(self.blocks) >= MAX_BLOCKS:
            self.broken(token, f"blocks are nested deeper than {MAX_BLOCKS}", "write the inner ones as functions")
        else:
            self.chunk.body = []
            self.statements().append(self.chunk)
            self.blocks.append(self.chunk)
            self.chunk = Chunk()
            return
        self.flush()
        self.blocks.append(None)

    def closes(self, token: Token) -> None:
        if self.open and _CLOSERS[self.open[-1].type] == token.type:
            self.open.pop()
            self.chunk.tokens.append(token)
        elif token.type == "RBRACE" and self.blocks:
            self.unclosed()
            self.flush()
            self.blocks.pop()
        elif self.open:
            self.broken(token, f"'{token}' does not close '{self.open[-1]}' of line {self.open[-1].line}", "")
            self.chunk.tokens.append(token)
        else:
            self.chunk.tokens.append(token)
            self.broken(token, f"'{token}' closes nothing", "")

    def unclosed(self) -> None:
        if self.open:
            sign = _SIGNS[_CLOSERS[self.open[-1].type]]
            self.broken(self.open[-1], f"'{self.open[-1]}' is not closed", f"add '{sign}'")

    def broken(self, token: Token, what: str, todo: str) -> None:
        if not self.chunk.broken:
            self.report.wrong(span(token), what, todo)
        self.chunk.broken = True

    def bad(self, token: Token) -> None:
        what = "this string is not closed" if token == '"' else f"unexpected character {token.value!r}"
        self.chunk.tokens.append(token)
        self.broken(token, what, "end it with '\"' on the same line" if token == '"' else "")

    def other(self, token: Token, following: Token | None, first_of_line: bool) -> None:
        starts = (
            token.type == "NAME"
            and token in WORDS
            and not (following is not None and following.type in ("EQUAL", "COMMA"))
        )
        if starts and self.open and first_of_line and following is not None and following.type == "NAME":
            self.unclosed()
            self.flush()
        if starts and not self.chunk.tokens:
            token = Token.new_borrow_pos(token.upper(), token.value, token)
        self.chunk.tokens.append(token)


def split(report: Report) -> list[Chunk]:
    """The statements of the report's text. What cannot be cut cleanly is reported and marked broken."""
    return _Splitter(report).run(list(GRAMMAR.lex(report.text)))
