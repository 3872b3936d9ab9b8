"""From text to syntax tree, statement by statement, with every syntax error reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lark import Token, UnexpectedInput
from lark.exceptions import VisitError

from moec.diagnostics import suggest
from moec.frontend.dsl import tree as t
from moec.frontend.dsl.build import TreeBuilder, Unreadable
from moec.frontend.dsl.report import Report
from moec.frontend.dsl.split import BLOCKS, GRAMMAR, WORDS, Chunk, span, split

_SHOWN = {
    "NAME": "a name",
    "INT": "a number",
    "FLOAT": "a number",
    "STRING": "a string",
    "CONSTANT": "a number",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "COMMA": "','",
    "COLON": "':'",
    "EQUAL": "'='",
    "DOT": "'.'",
    "ARROW": "'->'",
    "BODY": "'{'",
    "IN": "'in'",
    "ELLIPSIS": "'...'",
    "$END": "the line's end",
    "POWER": "an operator",
    "PRODUCT": "an operator",
    "SUM": "an operator",
    "COMPARE": "an operator",
    "OR": "an operator",
    "AND": "an operator",
    "NOT": "an operator",
}


def parse(report: Report) -> list[t.Statement]:
    """The statements of the report's text; broken ones stand in as ``Broken``, so that later ones still make sense."""
    return [_statement(chunk, report) for chunk in split(report)]


def _statement(chunk: Chunk, report: Report) -> t.Statement:
    node = _broken(chunk) if chunk.broken else _read(chunk, report)
    if chunk.body is None:
        return node
    body = tuple(_statement(c, report) for c in chunk.body)
    return replace(node, body=body) if isinstance(node, (t.Fn, t.For, t.Host)) else node


def _read(chunk: Chunk, report: Report) -> t.Statement:
    last = chunk.tokens[-1]
    parser: Any = GRAMMAR.parse_interactive("")
    try:
        for token in chunk.tokens:
            parser.feed_token(token)
        return TreeBuilder().transform(parser.feed_eof(last))
    except UnexpectedInput as error:
        _report_unexpected(chunk, getattr(error, "token", None), parser.accepts(), report)
    except VisitError as error:
        if not isinstance(error.orig_exc, Unreadable):
            raise
        report.wrong(error.orig_exc.at, error.orig_exc.what, error.orig_exc.todo)
    return _broken(chunk)


def _report_unexpected(chunk: Chunk, token: Token | None, accepts: set[str], report: Report) -> None:
    first = chunk.tokens[0]
    expected = list(dict.fromkeys(_SHOWN[a] for a in _SHOWN if a in accepts))
    todo = f"expected {' or '.join(expected)}" if 0 < len(expected) <= 6 else ""
    if token is None or token.type == "$END":
        if chunk.tokens[0].type in BLOCKS and "BODY" in accepts:
            what = {"FN": "a function's", "LAYER": "a layer's"}.get(chunk.tokens[0].type, "its")
            todo = f"{what} body begins with '{{' on the line where its head ends"
        report.wrong(span(chunk.tokens[-1]), "this statement ends too early", todo)
        return
    if first.type == "NAME" and len(chunk.tokens) > 1 and token is chunk.tokens[1]:
        hint = "write use NAME, NAME" if first in ("import", "from") else suggest(str(first), WORDS)
        if token.type in ("NAME", "LPAR", "STRING") and hint:
            report.wrong(span(first), f"no statement begins with '{first}'", hint)
            return
        todo = "a statement is NAME = expression, or begins with " + ", ".join(WORDS)
    report.wrong(span(token), f"unexpected '{token}'", _FORMS.get((first.type, token.type), todo))


_FORMS = {
    ("DIM", "EQUAL"): "write dim NAME in [1, 8192] = 4096 for a size left open, NAME = 4096 for a fixed one",
    ("FOR", "BODY"): "write for NAME in 0:4 { ... }",
}
"""What to write where a statement that begins with the first goes wrong at the second."""


def _broken(chunk: Chunk) -> t.Broken:
    """What a statement that cannot be read would have defined: the names before ``=``, or before ``:`` in a
    declaration.
    """
    names: list[str] = []
    tokens = chunk.tokens
    declares = tokens[0].type in ("USE", "INPUT", "WEIGHT", "DIM", "GROUP", "FN", "LAYER", "OUTPUT", "FOR", "HOST")
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "NAME" and (
            not declares
            or following is None
            or following.type in ("COLON", "IN", "LPAR", "LSQB")
            or (tokens[0].type in ("GROUP", "DIM") and token is tokens[1])
        ):
            names.append(str(token))
        if token.type == "EQUAL" and not declares:
            break
    return t.Broken(span(tokens[0]), tuple(names))
