"""What the names of a file stand for while it is lowered, and how types are shown to the person who wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.report import Report, Span
from moec.frontend.dsl.values import UNKNOWN, Item
from moec.ir.graph import Graph, Module, Origin, Source, Value
from moec.ir.types import DTYPES, TensorType

MAX_DEPTH = 100
"""Levels of expressions and calls that the lowering follows at once; it recurses, so this bounds the stack."""

MAX_INSTANCES = 4096
"""Functions that a file may become, one for each function and set of argument types."""


@dataclass
class Binding:
    """What a name stands for; ``what`` is the kind of its declaration, ``at`` where that stands."""

    item: Item
    what: str
    at: Span
    read: bool = False


@dataclass
class Spelling:
    """How sizes are spelt in the file, so that messages say ``bf16[T, H]`` and not ``bf16[T, 7680]``."""

    names: dict[int, dict[str, None]] = field(default_factory=dict)
    declared: dict[Value, str] = field(default_factory=dict)

    def note(self, size: Item, text: str) -> None:
        """``size`` is written as ``text`` somewhere."""
        if isinstance(size, int) and not isinstance(size, bool) and size > 1 and not text.isdigit():
            self.names.setdefault(size, {})[text] = None

    def type(self, type_: TensorType, value: Value | None = None) -> str:
        """The type in the file's own terms, followed by the numbers where they differ."""
        plain = str(type_)
        spelt = self.declared.get(value) if value is not None else None
        if spelt is None and type_.shape is not None:
            spelt = f"{type_.dtype}[{', '.join(map(self._dim, type_.shape))}]"
        return plain if spelt is None or spelt == plain else f"{spelt} = {plain}"

    def _dim(self, dim: Item) -> str:
        names = self.names.get(dim, {}) if isinstance(dim, int) else {}
        return next(iter(names)) if len(names) == 1 else str(dim)


@dataclass
class Program:
    """What one file becomes, and what is known while it does."""

    report: Report
    module: Module = field(default_factory=Module)
    tune: dict[str, int] = field(default_factory=dict)
    functions: dict[str, t.Fn] = field(default_factory=dict)
    called: dict[str, None] = field(default_factory=dict)
    spelling: Spelling = field(default_factory=Spelling)
    instances: dict[object, Graph | None] = field(default_factory=dict)
    """Functions by name and types of arguments; None for one that could not be made."""
    active: list[str] = field(default_factory=list)
    """The functions being lowered now, outermost first."""
    depth: int = 0


class Scope:
    """The names of ``main`` or of one function, the graph that its statements build, and its reports."""

    def __init__(self, program: Program, graph: Graph, outer: Scope | None = None, caller: str = ""):
        self.program, self.graph, self.outer, self.caller = program, graph, outer, caller
        self.names: dict[str, Binding] = {}

    def wrong(self, at: Span, what: str, todo: str = "") -> Item:
        """Report a problem; the item that stands for the failed expression."""
        self.program.report.wrong(at, what + self.caller, todo)
        return UNKNOWN

    def origin(self, at: Span, label: str) -> Origin:
        return Origin((Source(self.program.report.file, at.line, label),))

    def find(self, name: str) -> Binding | None:
        """The binding of a name; a function sees the sizes, constants and records of the file, not its tensors."""
        found = self.names.get(name)
        if found is None and self.outer is not None:
            found = self.outer.find(name)
        return found

    def visible(self) -> Iterable[str]:
        """Names that an expression here may use."""
        outer = self.outer.visible() if self.outer is not None else DTYPES
        return [*self.names, *outer]

    def define(self, name: t.Name, item: Item, what: str) -> None:
        """Give a name a meaning. Only the result of an earlier statement may be given a new one."""
        if name.text == "_":
            return
        old = self.names.get(name.text)
        if name.text in DTYPES:
            self.wrong(name.at, f"'{name.text}' is a dtype", "choose another name")
            return
        if old is not None and not (old.what == what == "result") and old.item is not UNKNOWN:
            self.wrong(
                name.at, f"'{name.text}' is already {article(old.what)} of line {old.at.line}", "choose another name"
            )
            return
        if isinstance(item, Value) and not item.name:
            item.name = name.text
        self.names[name.text] = Binding(item, what, name.at, read=old.read if old is not None else False)

    def show(self, value: Value) -> str:
        """A tensor for messages: its name, if it has one, and its type."""
        type_ = self.program.spelling.type(value.type, value)
        return f"{value.name}: {type_}" if value.name else type_


def article(what: str) -> str:
    """``what`` with "a" or "an"."""
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"
