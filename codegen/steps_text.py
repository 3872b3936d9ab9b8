"""Text form of a program's steps, each a line; see ``moec.codegen.program_text``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from moec.codegen.operator_call import OperatorCall
from moec.codegen.operator_text import parse_call, print_call
from moec.codegen.program import Copy, Launch, Memset, Step
from moec.codegen.steps import COMM, COMPUTE, Bind, Collective, HostOp, Record, Wait
from moec.ir.symbol import parse_dim


def print_step(s: Step) -> str:
    """The line of a step."""
    if isinstance(s, Record | Wait):
        return f"{'record' if isinstance(s, Record) else 'wait'} {s.event} on {s.stream}"
    if isinstance(s, OperatorCall):
        return f"library {print_call(s)}"
    if isinstance(s, Memset):
        return f"memset {s.tensor}{_on(s.stream)}"
    nodes = json.dumps(list(s.nodes))
    if isinstance(s, Copy):
        return f"copy {s.target} = {s.source} {nodes}{_on(s.stream)}"
    if isinstance(s, Collective):
        lists = f" send {s.send} receive {s.receive}" if s.send else ""
        by = f" by {s.reduction}" if s.reduction else ""
        return f"{s.op} {s.target} = {s.source} over {s.group} {{{s.count}}}{by}{lists} {nodes}{_on(s.stream, COMM)}"
    if isinstance(s, HostOp):
        return f"host {s.target} = {s.op}({', '.join(s.sources)}) {json.dumps(dict(s.params))} {nodes}"
    if isinstance(s, Bind):
        return f"bind {s.symbol} = {s.source} {{{s.low}; {s.high}}} {nodes}"
    operands = ", ".join(f"{name}={tensor}" for name, tensor in s.operands)
    args = "; ".join(f"{name} = {dim}" for name, dim in s.args)
    when = "" if s.when == 1 else f" when {{{s.when}}}"
    lengths = f" lengths {json.dumps(dict(s.lengths))}" if s.lengths else ""
    return f"launch {s.kernel}({operands}) {{{args}}} {nodes}{when}{lengths}{_on(s.stream)}"


def _on(stream: str, usual: str = COMPUTE) -> str:
    return "" if stream == usual else f" on {stream}"


def split(text: str, separator: str) -> Iterator[str]:
    """The parts between separators outside parentheses."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == separator and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


def _pairs(text: str, separator: str) -> Iterator[tuple[str, str]]:
    for part in split(text, separator):
        name, _, value = part.partition("=")
        yield name.strip(), value.strip()


def _nodes(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _launch(m: re.Match[str]) -> Step:
    args = tuple((n, parse_dim(d)) for n, d in _pairs(m[3], ";"))
    when = parse_dim(m[5]) if m[5] else 1
    lengths = tuple(json.loads(m[6]).items()) if m[6] else ()
    return Launch(m[1], tuple(_pairs(m[2], ",")), args, _nodes(m[4]), m[7] or COMPUTE, when, lengths)


def _collective(m: re.Match[str]) -> Step:
    op, target, source, group, count, by, send, receive, nodes, stream = m.groups()
    return Collective(
        op, group, source, target, parse_dim(count), by or "", send or "", receive or "", _nodes(nodes), stream or COMM
    )


def _host(m: re.Match[str]) -> Step:
    params = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(m[4]).items()}
    return HostOp(m[2], m[1], tuple(filter(None, m[3].split(", "))), tuple(params.items()), _nodes(m[5]))


def _bind(m: re.Match[str]) -> Step:
    return Bind(m[1], m[2], parse_dim(m[3]), parse_dim(m[4]), _nodes(m[5]))


_ON = r"(?: on (\w+))?"
_COLLECTIVE = r"(\w+) = (\w+) over (\w+) \{(.*?)\}(?: by (\w+))?(?: send (\w+) receive (\w+))? (\[.*\])" + _ON
_EXCHANGES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v")
_READ: dict[str, tuple[re.Pattern[str], Callable[[Any], Step]]] = {
    "launch": (
        re.compile(r"(\w+)\((.*?)\) \{(.*?)\} (\[.*?\])(?: when \{(.*?)\})?(?: lengths (\{.*\}))?" + _ON),
        _launch,
    ),
    "memset": (re.compile(r"(\w+)" + _ON), lambda m: Memset(m[1], m[2] or COMPUTE)),
    "copy": (re.compile(r"(\w+) = (\w+) (\[.*\])" + _ON), lambda m: Copy(m[1], m[2], _nodes(m[3]), m[4] or COMPUTE)),
    "library": (re.compile(r"(.*)"), lambda m: parse_call(m[1])),
    "record": (re.compile(r"(\w+) on (\w+)"), lambda m: Record(m[1], m[2])),
    "wait": (re.compile(r"(\w+) on (\w+)"), lambda m: Wait(m[1], m[2])),
    "host": (re.compile(r"(\w+) = (\w+)\((.*?)\) (\{.*\}) (\[.*\])"), _host),
    "bind": (re.compile(r"(\S+) = (\w+) \{(.*); (.*)\} (\[.*\])"), _bind),
    **{op: (re.compile(f"({op}) {_COLLECTIVE}"), _collective) for op in _EXCHANGES},
}


def parse_step(word: str, rest: str) -> Step | None:
    """The step of a line that starts with ``word``; None where it is no step. ValueError where it cannot be read."""
    if word not in _READ:
        return None
    pattern, make = _READ[word]
    found = pattern.fullmatch(f"{word} {rest}" if word in _EXCHANGES else rest)
    return None if found is None else make(found)
