"""Calls replaced by what they call, for stages that see one function at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from moec.ir.graph import Graph, Module, Node, Origin, Value
from moec.ir.group import Group
from moec.ir.symbol import DEFAULT_BOUND, Dim, Expr, substitute, sym, symbols_of
from moec.ir.types import TensorType
from moec.ops.registry import OPS
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.dce import drop_unused_functions


@register_pass
class Inline(Pass):
    """Put the nodes of called functions in the place of their calls; fused bodies and those of loops stay functions.

    Sizes that data decides within a callee get a name of their own in each copy.
    """

    name = "inline"

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        _inline(module, module.main, result, lambda fn: True)
        if result.changed:
            drop_unused_functions(module, result)
        return result


def inline_calls(module: Module, result: Result, wanted: Callable[[Graph], bool]) -> None:
    """Do the same, in every function, for the calls of functions that are ``wanted``."""
    chosen = {fn.name for fn in module.functions.values() if fn is not module.main and wanted(fn)}
    for graph in list(module.functions.values()) if chosen else ():
        _inline(module, graph, result, lambda fn: fn.name in chosen)
    if chosen:
        drop_unused_functions(module, result)


def _inline(module: Module, graph: Graph, result: Result, wanted: Callable[[Graph], bool]) -> None:
    for node in graph:
        if node.op == "call" and wanted(module.functions[node.attrs["fn"]]):
            for old, new in zip(node.results, _Copier(module, graph, node).copy(node, node.operands), strict=True):
                old.replace_with(new)
            graph.erase(node)
            result.apply("call", node.origin, graph)


class _Copier:
    """Copies callees before the outermost call ``at``."""

    def __init__(self, module: Module, graph: Graph, at: Node):
        self.module, self.graph, self.at = module, graph, at
        self.given = {s for v in graph.inputs for s in _symbols(v.type)} | _ranks(module)
        self.origins: dict[tuple[int, int], Origin] = {}
        """By call and callee's provenance: nodes that came from the same places go on sharing them."""

    def copy(self, call: Node, operands: list[Value | None]) -> list[Value]:
        """The results of ``call`` on ``operands``, made by copies of its callee's nodes."""
        fn = self.module.functions[call.attrs["fn"]]
        sizes = self.sizes(fn, operands)
        copies: dict[Value, Value | None] = dict(zip(fn.inputs, operands, strict=True))
        for node in fn:
            mapped = [None if v is None else copies[v] for v in node.operands]
            if node.op == "call":
                made = self.copy(node, mapped)
            else:
                types = [_typed(v.type, sizes) for v in node.results]
                attrs = {k: _sized(v, sizes) for k, v in node.attrs.items()}
                if node.op == "host" and sizes:
                    attrs["fn"] = self.host(node.attrs["fn"], sizes)
                made = self.graph.insert(Node(node.op, mapped, attrs, types, self.origin(call, node)), self.at).results
                for old, new in zip(node.results, made, strict=True):
                    new.name = old.name
            copies.update(zip(node.results, made, strict=True))
        return [v for v in (copies[r] for r in fn.outputs) if v is not None]

    def origin(self, call: Node, node: Node) -> Origin:
        """Where the copy of a callee's node came from: the call, then what the node came from."""
        key = id(call), id(node.origin)
        if key not in self.origins:
            self.origins[key] = Origin(call.origin.sources + node.origin.sources, node.origin.rewrites)
        return self.origins[key]

    def sizes(self, fn: Graph, operands: list[Value | None]) -> Mapping[str, Dim]:
        """The callee's own symbols: those of its parameters in the caller's sizes, the others under fresh names."""
        found: dict[str, Dim] = {}
        for parameter, given in zip(fn.inputs, operands, strict=True):
            if given is not None and parameter.type.shape is not None and given.type.shape is not None:
                for wanted, actual in zip(parameter.type.shape, given.type.shape, strict=True):
                    if isinstance(wanted, Expr) and str(wanted).isidentifier():
                        found.setdefault(str(wanted), actual)
        for name in dict.fromkeys(self.decided(fn)):
            if name not in found and name not in self.given:
                found[name] = sym(self.fresh(name))
        return {name: dim for name, dim in found.items() if dim != sym(name)}

    def decided(self, fn: Graph) -> Iterator[str]:
        """The symbols in what a function makes, those of its host steps included."""
        for node in fn:
            for v in node.results:
                yield from _symbols(v.type)
            binds = OPS[node.op].binds if node.op in OPS else ""
            if binds:
                yield from symbols_of(node.attrs[binds])
            if node.op == "host":
                yield from self.decided(self.module.functions[node.attrs["fn"]])

    def host(self, name: str, sizes: Mapping[str, Dim]) -> str:
        """A copy of a function that the host runs, in other sizes."""
        old = self.module.functions[name]
        number = 1
        while f"{name}.{number}" in self.module.functions:
            number += 1
        made = self.module.add(Graph(f"{name}.{number}"))
        copies: dict[Value, Value] = {v: made.add_input(v.name, _typed(v.type, sizes)) for v in old.inputs}
        for node in old:
            types = [_typed(v.type, sizes) for v in node.results]
            attrs = {k: _sized(v, sizes) for k, v in node.attrs.items()}
            if node.op == "call":
                attrs["fn"] = self.host(node.attrs["fn"], sizes)
            operands = [None if v is None else copies[v] for v in node.operands]
            copy = made.append(node.op, operands, attrs, types, node.origin)
            for v, result in zip(node.results, copy.results, strict=True):
                result.name = v.name
                copies[v] = result
        made.set_outputs([copies[v] for v in old.outputs], old.output_names)
        return made.name

    def fresh(self, name: str) -> str:
        """A symbol with the bounds of ``name`` that nothing else is called."""
        number = 1
        while f"{name}_{number}" in self.module.symbols:
            number += 1
        unique = f"{name}_{number}"
        self.module.symbols[unique] = self.module.symbols.get(name, DEFAULT_BOUND)
        return unique


def _ranks(module: Module) -> set[str]:
    """The symbols in groups of ranks, which are the same everywhere."""
    groups = [n.attrs["group"] for n in module.nodes() if isinstance(n.attrs.get("group"), Group)]
    groups += [s.group for shards in module.shards.values() for s in shards]
    return {s for g in groups for d in (g.size, g.stride) for s in symbols_of(d)}


def _symbols(type_: TensorType) -> Iterator[str]:
    return (s for d in type_.shape or () for s in symbols_of(d))


def _typed(type_: TensorType, sizes: Mapping[str, Dim]) -> TensorType:
    if not sizes or type_.shape is None:
        return type_
    return type_.with_shape(tuple(substitute(d, sizes) for d in type_.shape))


def _sized(value: Any, sizes: Mapping[str, Dim]) -> Any:
    if isinstance(value, Expr):
        return substitute(value, sizes)
    return tuple(_sized(v, sizes) for v in value) if isinstance(value, tuple) else value
