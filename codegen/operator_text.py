"""Text form of library calls, a line each: ``parse_call(print_call(c)) == c``.

aclnnSwiGlu(x = h:f32[S, 128]; dim = int64_t -1; out = y:f32[S, 64]) -> out "aclnnop/aclnn_swi_glu.h" 8.0 ["swiglu"]

A view with strides has them in braces, lists stand in < | >, whole numbers in ( ), a null pointer is ``null``.
"""

from __future__ import annotations

import json
import re

from moec.codegen.operator_call import Argument, Integers, Number, OperatorCall, View, Views
from moec.ir.symbol import Dim, parse_dim

_CALL = re.compile(r"(\w+)\((.*)\) -> (\S*) (\"[^\"]*\") (\S+) (\[.*\])")
_VIEW = re.compile(r"(\w+):(\w+)\[(.*?)\](?:\{(.*)\})?")
_NUMBER = re.compile(r"(\w+) (\S.*)")


def _joined(dims: tuple[Dim, ...]) -> str:
    return ", ".join(map(str, dims))


def _print(argument: Argument) -> str:
    if argument is None:
        return "null"
    if isinstance(argument, str):
        return json.dumps(argument)
    if isinstance(argument, Number):
        value = argument.value
        return f"{argument.type} {str(value).lower() if isinstance(value, bool) else value}"
    if isinstance(argument, Integers):
        return f"({_joined(argument.items)})"
    if isinstance(argument, Views):
        return f"<{' | '.join(map(_print, argument.items))}>"
    strides = f"{{{_joined(argument.strides)}}}" if argument.strides else ""
    return f"{argument.tensor}:{argument.dtype}[{_joined(argument.shape)}]{strides}"


def print_call(call: OperatorCall) -> str:
    """The line without the word that starts it."""
    arguments = "; ".join(f"{name} = {_print(a)}" for name, a in call.arguments)
    ends = f"{','.join(call.results)} {json.dumps(call.header)} {call.since} {json.dumps(list(call.nodes))}"
    return f"{call.function}({arguments}) -> {ends}"


def _dims(text: str) -> tuple[Dim, ...]:
    """Dimensions separated by commas outside parentheses."""
    out, depth, start = [], 0, 0
    for i, c in enumerate(text + ","):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            if text[start:i].strip():
                out.append(parse_dim(text[start:i].strip()))
            start = i + 1
    return tuple(out)


def _view(text: str) -> View:
    m = _VIEW.fullmatch(text)
    if m is None:
        raise ValueError(f"no view: {text!r}")
    return View(m[1], m[2], _dims(m[3]), _dims(m[4] or ""))


def _number(type: str, text: str) -> Number:
    if type == "bool":
        return Number(type, text == "true")
    if type in ("double", "float"):
        return Number(type, float(text))
    return Number(type, text if type.startswith("acl") else parse_dim(text))


def _parse(text: str) -> Argument:
    if text == "null":
        return None
    if text.startswith('"'):
        return str(json.loads(text))
    if text.startswith("("):
        return Integers(_dims(text[1:-1]))
    if text.startswith("<"):
        return Views(tuple(_view(part) for part in text[1:-1].split(" | ")))
    number = _NUMBER.fullmatch(text)
    if number is not None and ":" not in number[1]:
        return _number(number[1], number[2])
    return _view(text)


def parse_call(text: str) -> OperatorCall:
    """The call of a line; ValueError where it cannot be read."""
    m = _CALL.fullmatch(text)
    if m is None:
        raise ValueError(f"no library call: {text!r}")
    pairs = [part.partition(" = ") for part in m[2].split("; ")] if m[2] else []
    arguments = tuple((name, _parse(value)) for name, _, value in pairs)
    return OperatorCall(m[1], arguments, tuple(m[3].split(",")), json.loads(m[4]), m[5], tuple(json.loads(m[6])))
