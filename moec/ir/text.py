"""The text form of the layer IR: ``parse_module(print_module(m))`` is ``m``, and printing twice gives the same bytes.

::

    symbol T in [1, 4096]

    func main(%x: f32[T, 32]) -> (output: f32[T, 64]) {
      %w = weight() {name = "w1", data = dense<f32[64, 32]: sha256:0123456789abcdef>} : f32[64, 32]
      %0 = matmul(%x, %w) {transpose_b = true, to = none} : f32[T, 64]  # model.onnx:12 MatMul
      return %0
    }

One line a node, so a reader needs no grammar and two texts compare line by line. What follows ``#`` is a comment:
provenance is
printed there when asked for and not read back.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from moec.diagnostics import Problem, Refusal, Where
from moec.ir.attrs import AttrReader, Store, print_attr
from moec.ir.bulk import collection_paused
from moec.ir.graph import Graph, Module, Node, Origin, Source, Value
from moec.ir.group import Shard
from moec.ir.symbol import DEFAULT_BOUND, Dim, parse_dim
from moec.ir.types import F32, TensorType, dtype

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


def print_module(module: Module, origins: bool = False) -> str:
    """The module's text; with ``origins`` each line ends in a comment that says where its node came from."""
    parts = [f"symbol {name} in [{low}, {high}]\n" for name, (low, high) in module.symbols.items()]
    for name, shards in module.shards.items():
        parts += [f"sharded {json.dumps(name)} over {s.group} axis {s.axis}\n" for s in shards]
    for graph in module.functions.values():
        parts.append(("\n" if parts else "") + print_graph(graph, origins))
    return "".join(parts)


def print_graph(graph: Graph, origins: bool = False) -> str:
    """The text of one function."""
    names = _Names()
    inputs = ", ".join(f"{names.define(v)}: {v.type}" for v in graph.inputs)
    outputs = ", ".join(f"{_quoted(n)}: {v.type}" for n, v in zip(graph.output_names, graph.outputs, strict=True))
    lines = [f"func {graph.name}({inputs}) -> ({outputs}) {{"]
    lines += [_print_node(node, names, origins) for node in graph]
    returned = ", ".join(names[v] for v in graph.outputs)
    lines.append(f"  return {returned}".rstrip())
    return "\n".join(lines) + "\n}\n"


def _print_node(node: Node, names: _Names, origins: bool) -> str:
    operands = ", ".join([names[v] for v in node.operands])
    text = f"{node.op}({operands})"
    if node.attrs:
        text += " {" + ", ".join([f"{k} = {print_attr(v)}" for k, v in node.attrs.items()]) + "}"
    if node.results:
        results = ", ".join([names.define(v) for v in node.results])
        text = f"{results} = {text} : {', '.join([str(v.type) for v in node.results])}"
    if origins and (node.origin.sources or node.origin.rewrites):
        text += f"  # {node.origin}".replace("\n", " ")
    return "  " + text


def _quoted(name: str) -> str:
    return name if _PLAIN.match(name) else json.dumps(name)


class _Names:
    """Unique names for values: their own where they have one (quoted where it is not plain), numbers in order of
    definition where not.
    """

    def __init__(self) -> None:
        self.suffixes: dict[str, int] = {}
        """Names taken, each with the last number appended to it."""
        self.names: dict[Value | None, str] = {None: "none"}
        self.counter = 0

    def define(self, value: Value) -> str:
        if value.name:
            text = "%" + _quoted(self.unique(value.name))
        else:
            text, self.counter = f"%{self.counter}", self.counter + 1
        self.names[value] = text
        return text

    def unique(self, name: str) -> str:
        """``name``, or ``name.N`` with the first number that makes it one of its own."""
        unique = name
        while unique in self.suffixes:
            self.suffixes[name] += 1
            unique = f"{name}.{self.suffixes[name]}"
        self.suffixes[unique] = 0
        return unique

    def __getitem__(self, value: Value | None) -> str:
        name = self.names.get(value)
        return name if name is not None else f"%<{value.name if value and value.name else 'not defined here'}>"


_VALUE = r'%(?:[A-Za-z0-9_.]+|"(?:[^"\\]|\\.)*")'
_NODE = re.compile(rf"\s+(?:((?:{_VALUE})(?:, {_VALUE})*) = )?([A-Za-z_][\w.]*)\(((?:{_VALUE}|none|, )*)\)")
_FUNC = re.compile(r"func ([A-Za-z_][\w.]*)\((.*)\) -> \((.*)\) \{\s*(?:#.*)?\Z")
_SYMBOL = re.compile(r"symbol (\S+) in \[(-?\d+), (-?\d+)\]\s*(?:#.*)?\Z")
_SHARDED = re.compile(r'sharded ("(?:[^"\\]|\\.)*") over (@.*) axis (\d+)\s*(?:#.*)?\Z')
_TYPED = re.compile(r'(%?(?:[A-Za-z0-9_.]+|"(?:[^"\\]|\\.)*")): ([a-z0-9]+\[[^\]]*\])')
_TYPE = re.compile(r"([a-z0-9]+)\[([^\]]*)\]")
_TOKEN = re.compile(_VALUE + "|none")
_ATTRS = re.compile(r'(?: \{((?:[^"{}<\\]|"[^"\\]*")*)\})?')
"""Attributes without tensors and escapes: most nodes' are a few texts that stand many times, so each is read once."""


def parse_module(text: str, file: str = "<text>", store: Store | None = None) -> Module:
    """The module that ``text`` describes; ``store`` gives the contents of tensors printed by key.

    Raises Refusal with every line that cannot be read.
    """
    with collection_paused():
        return _Reader(text, file, store or {}).module()


class _Reader:
    def __init__(self, text: str, file: str, store: Store):
        self.lines = text.split("\n")
        self.file, self.store = file, store
        self.types: dict[str, TensorType] = {}
        self.type_lists: dict[str, list[TensorType]] = {}
        self.attr_texts: dict[str, dict[str, Any]] = {}
        self.problems: list[Problem] = []
        self.graph: Graph | None = None
        self.values: dict[str, Value] = {}
        self.returns: list[TensorType] | None = None
        """What the head says that the function returns; None where the head was refused."""
        self.returned = False
        self.number = 0
        self.column: int | None = None
        """Where in the line a refused attribute stands."""

    def module(self) -> Module:
        module = Module()
        for number, line in enumerate(self.lines, 1):
            self.number = number
            stripped = line.strip()
            if not stripped or stripped[0] == "#":
                continue
            try:
                self.line(module, line, stripped)
            except ValueError as error:
                self.refuse(str(error), line)
                self.forgive(stripped)
        if self.graph is not None:
            self.refuse(f"function {self.graph.name} is not closed by '}}'", "")
        if not module.functions and not self.problems:
            self.refuse("no function in this text", self.lines[0])
        if self.problems:
            raise Refusal(self.problems)
        return module

    def refuse(self, what: str, line: str) -> None:
        column = self.column or (len(line) - len(line.lstrip()) + 1 if line else 0)
        self.column = None
        self.problems.append(Problem(what, Where(self.file, self.number, column, line)))

    def forgive(self, line: str) -> None:
        """Take what a refused line would have defined as defined, so that its readers are not refused too."""
        names, separator, _ = line.partition(" = ")
        if self.graph is not None and separator and names.startswith("%"):
            for token in _TOKEN.findall(names):
                self.values.setdefault(token, Value(TensorType(F32, None), None, 0))

    def line(self, module: Module, line: str, stripped: str) -> None:
        if self.graph is None:
            if match := _SYMBOL.match(stripped):
                self.symbol(module, match[1], int(match[2]), int(match[3]))
            elif match := _SHARDED.match(stripped):
                shard = Shard(AttrReader(match[2], 0, self.store).group(), int(match[3]))
                name = _unquoted(match[1])
                module.shards[name] = (*module.shards.get(name, ()), shard)
            elif match := _FUNC.match(stripped):
                self.open(module, match)
            else:
                raise ValueError("expected 'symbol NAME in [LOW, HIGH]' or 'func NAME(...) -> (...) {'")
        elif stripped[0] == "}":
            name, self.graph = self.graph.name, None
            if not self.returned:
                raise ValueError(f"function {name} has no return")
        elif self.returned:
            raise ValueError("nothing follows a return but '}'")
        elif stripped == "return" or stripped.startswith("return "):
            self.close(stripped[6:])
        else:
            self.node(line)

    def symbol(self, module: Module, name: str, low: int, high: int) -> None:
        if name in module.symbols or low > high:
            raise ValueError(f"symbol {name} is given twice" if low <= high else f"no size lies in [{low}, {high}]")
        if low < 0 or high > DEFAULT_BOUND[1]:
            raise ValueError(f"[{low}, {high}] are no bounds of a size: they lie in [0, {DEFAULT_BOUND[1]}]")
        module.symbols[name] = low, high

    def open(self, module: Module, match: re.Match[str]) -> None:
        self.graph, self.values, self.returned, self.returns = Graph(match[1]), {}, False, None
        module.add(self.graph)
        for name, kind in self.typed(match[2]):
            if name[0] != "%":
                raise ValueError(f"the input {name} does not begin with '%'")
            self.define(name, self.graph.add_input(_unquoted(name[1:]), self.type(kind)))
        outputs = self.typed(match[3])
        self.graph.output_names = [_unquoted(name) for name, _ in outputs]
        self.returns = [self.type(kind) for _, kind in outputs]

    @staticmethod
    def typed(text: str) -> list[tuple[str, str]]:
        """The names and types of a function's head."""
        found = [(m[1], m[2]) for m in _TYPED.finditer(text)]
        if ", ".join(f"{name}: {kind}" for name, kind in found) != text.strip():
            raise ValueError(f"not a list of names and types: {text}")
        return found

    def define(self, token: str, value: Value) -> None:
        if token in self.values:
            raise ValueError(f"{token} is defined twice")
        value.name = "" if token[1:].isdigit() else _unquoted(token[1:])
        self.values[token] = value

    def close(self, rest: str) -> None:
        assert self.graph is not None
        self.returned = True
        names = self.graph.output_names
        values = [self.operand(t) for t in _TOKEN.findall(rest.split("  #")[0])]
        if self.returns is None:
            return
        self.graph.set_outputs([v for v in values if v is not None], names)
        for value, declared in zip(self.graph.outputs, self.returns, strict=True):
            if value.type != declared and not self.problems:
                raise ValueError(f"returns {value.type} where the function's head says {declared}")

    def operand(self, token: str) -> Value | None:
        if token == "none":
            return None
        value = self.values.get(token)
        if value is None:
            raise ValueError(f"{token} is not defined before this line")
        return value

    def type(self, text: str) -> TensorType:
        found = self.types.get(text)
        if found is None:
            match = _TYPE.fullmatch(text)
            if match is None:
                raise ValueError(f"not a type: {text}")
            shape = None if match[2] == "*" else tuple(_split_dims(match[2]))
            found = self.types[text] = TensorType(dtype(match[1]), shape)
        return found

    def node(self, line: str) -> None:
        assert self.graph is not None
        match = _NODE.match(line)
        if match is None:
            raise ValueError("expected '%results = op(%operands) {attributes} : types'")
        results, op, operands = match.groups()
        attrs, at = self.attrs(line, match.end())
        types = self.result_types(line, at)
        tokens = _tokens(results) if results else []
        if len(tokens) != len(types):
            raise ValueError(f"{len(tokens)} results but {len(types)} types")
        origin = Origin((Source(self.file, self.number, op),))
        node = self.graph.append(op, [self.operand(t) for t in _tokens(operands)], attrs, types, origin)
        for token, value in zip(tokens, node.results, strict=True):
            self.define(token, value)

    def attrs(self, line: str, at: int) -> tuple[dict[str, Any], int]:
        """The attributes that stand at ``at``, if any, and where they end."""
        match = _ATTRS.match(line, at)
        if match is not None and match[1] is not None:
            text = match[1]
            if text not in self.attr_texts:
                self.attr_texts[text], _ = self.read_attrs(line, at)
            return dict(self.attr_texts[text]), match.end()
        return self.read_attrs(line, at)

    def read_attrs(self, line: str, at: int) -> tuple[dict[str, Any], int]:
        reader = AttrReader(line, at, self.store)
        try:
            return reader.attrs(), reader.at
        except ValueError:
            self.column = reader.at + 1
            raise

    def result_types(self, line: str, at: int) -> list[TensorType]:
        rest = line[at:].split("  #")[0].strip()
        if rest not in self.type_lists:
            texts = [m[0] for m in _TYPE.finditer(rest)]
            if rest and f": {', '.join(texts)}" != rest:
                raise ValueError(f"expected ': types', not '{rest}'")
            self.type_lists[rest] = [self.type(t) for t in texts]
        return self.type_lists[rest]


def _tokens(text: str) -> list[str]:
    """The values (or ``none``) of a list that the line's pattern has already checked."""
    if '"' in text:
        return _TOKEN.findall(text)
    return text.split(", ") if text else []


def _unquoted(name: str) -> str:
    return str(json.loads(name)) if name.startswith('"') else name


def _split_dims(text: str) -> list[Dim]:
    dims: list[Dim] = []
    depth = start = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            dims.append(parse_dim(text[start:i].strip()))
            start = i + 1
    if text.strip():
        dims.append(parse_dim(text[start:].strip()))
    return dims


def load_module(path: Path, store: Store | None = None) -> Module:
    """Read a ``.mir`` file; Refusal where it cannot be read."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"cannot read {path}: {error}", Where(str(path)), "give a readable .mir file") from None
    return parse_module(text, path.name, store)
