"""What the names of a file stand for while it is lowered, and how types are shown to the person who wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from moec.frontend.dsl import tree as t
from moec.frontend.dsl.report import Report, Span
from moec.frontend.dsl.values import UNKNOWN, Item
from moec.ir.graph import Graph, Module, Origin, Source, Value
from moec.ir.group import Shard
from moec.ir.types import DTYPES, TensorType

MAX_DEPTH = 100
"""Levels of expressions and calls that the lowering follows at once; it recurses, so this bounds the stack."""

MAX_INSTANCES = 4096
"""Functions that a file may become, one for each function and set of argument types."""

MAX_STATEMENTS = 20_000
"""Statements, those of loops once for each turn, and calls of layers that a file may become."""


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


@dataclass(frozen=True)
class LayerWeight:
    """A weight of a layer: its name in files of numbers, as far as the layer knows it, type and sharding."""

    name: str
    type: TensorType
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class Instance:
    """What a function or layer became for one set of arguments; its weights are the graph's last inputs."""

    graph: Graph
    weights: tuple[LayerWeight, ...]


@dataclass
class Unit:
    """A text whose statements are lowered, the file or the shared layers: its report, and what it may call by name."""

    report: Report
    functions: dict[str, t.Fn] = field(default_factory=dict)


@dataclass
class Program:
    """What one file becomes, and what is known while it does."""

    report: Report
    module: Module = field(default_factory=Module)
    tune: dict[str, int] = field(default_factory=dict)
    shared: Scope | None = None
    """The names of the shared layers, where the file uses any."""
    called: dict[str, None] = field(default_factory=dict)
    """The functions that are called, by their keys."""
    spelling: Spelling = field(default_factory=Spelling)
    instances: dict[object, Instance | None] = field(default_factory=dict)
    """Functions by name and types of arguments; None for one that could not be made."""
    stored: dict[str, int] = field(default_factory=dict)
    """The weights of layers by the names that they have in files of numbers, and the line that makes them."""
    reserved: dict[str, None] = field(default_factory=dict)
    """The sizes and groups that the file declares anywhere."""
    statements: int = 0
    active: list[str] = field(default_factory=list)
    """The keys of the functions being lowered now, outermost first."""
    depth: int = 0


class Scope:
    """The names of ``main``, of one function or of one layer (``kind``), the graph that its statements build, and its
    reports.
    """

    def __init__(
        self,
        program: Program,
        graph: Graph,
        outer: Scope | None = None,
        caller: str = "",
        kind: str = "main",
        unit: Unit | None = None,
    ):
        self.program, self.graph, self.outer, self.caller, self.kind = program, graph, outer, caller, kind
        self.unit: Unit = unit or (Unit(program.report) if outer is None else outer.unit)
        self.names: dict[str, Binding] = {}
        self.weights: list[LayerWeight] = []
        """Of a layer: its own and those of the layers in it, in the order of the graph's inputs."""

    @property
    def file(self) -> Scope:
        """The scope of the file's own statements."""
        return self if self.outer is None else self.outer.file

    def wrong(self, at: Span, what: str, todo: str = "") -> Item:
        """Report a problem; the item that stands for the failed expression."""
        self.unit.report.wrong(at, what + self.caller, todo)
        return UNKNOWN

    def origin(self, at: Span, label: str) -> Origin:
        return Origin((Source(self.unit.report.file, at.line, label),))

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

    def counted(self, at: Span) -> bool:
        """Count one more statement; False where there are too many, which is reported once."""
        self.program.statements += 1
        if self.program.statements == MAX_STATEMENTS:
            self.wrong(at, f"the loops of this file become more than {MAX_STATEMENTS} statements", "repeat less")
        return self.program.statements < MAX_STATEMENTS

    def show(self, value: Value) -> str:
        """A tensor for messages: its name, if it has one, and its type."""
        type_ = self.program.spelling.type(value.type, value)
        return f"{value.name}: {type_}" if value.name else type_


class HostScope(Scope):
    """The names of a host block: what it reads from around it becomes an operand."""

    def __init__(self, around: Scope, graph: Graph):
        super().__init__(around.program, graph, around, around.caller, "host")
        self.around = around
        self.captures: list[Value] = []

    def find(self, name: str) -> Binding | None:
        found = super().find(name)
        if name in self.names or name not in self.around.names or found is None or not isinstance(found.item, Value):
            return found
        found.read = True
        value = self.graph.add_input(name, found.item.type)
        self.captures.append(found.item)
        self.names[name] = Binding(value, "result", found.at, read=True)
        return self.names[name]


def article(what: str) -> str:
    """``what`` with "a" or "an"."""
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"
