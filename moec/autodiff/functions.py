"""Functions that a module calls: each differentiated once into a forward and a backward function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.autodiff.activity import Activity, Wanted
from moec.autodiff.crossing import Crossing
from moec.autodiff.memory import callers_first
from moec.autodiff.sweep import Sweep
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.symbol import Expr, symbols_of
from moec.ops.build import call_types


@dataclass(frozen=True)
class Pair:
    """A differentiated function.

    ``forward`` gives the results and then the values that backward reads. ``backward`` takes the inputs ``inputs`` (by
    number), the results ``kept`` of forward, and the gradients of the results ``dys``; it gives the gradients of the
    inputs ``gradients``, then those of the function's own ``weights``.
    """

    forward: Graph
    backward: Graph
    inputs: tuple[int, ...]
    kept: tuple[int, ...]
    dys: tuple[int, ...]
    gradients: tuple[int, ...]
    weights: tuple[str, ...]


class Functions:
    """Differentiates called functions, each once for the inputs that vary and the results that count."""

    def __init__(self, module: Module, activity: Activity):
        self.module, self.activity = module, activity
        self.pairs: dict[tuple[str, Wanted, tuple[bool, ...]], Pair] = {}
        self.failures: list[tuple[Node, str]] = []

    def call(self, sweep: Sweep, node: Node, dys: Sequence[Value | None]) -> Sequence[Value | None]:
        """Make ``node`` a call of the forward function, append one of the backward function; its operands' gradients.

        Gradients of weights inside go to the sweep by name.
        """
        wanted = tuple(None if v is None else sweep.varied.get(v) for v in node.operands)
        key = node.attrs["fn"], wanted, tuple(dy is not None for dy in dys)
        if key not in self.pairs:
            self.pairs[key] = self.differentiate(*key)
        pair = self.pairs[key]
        made = self.exchange(sweep.graph, node, pair)
        operands = [made.operands[i] for i in pair.inputs] + [made.results[i] for i in pair.kept]
        operands += [dys[i] for i in pair.dys]
        if not pair.backward.outputs:
            return [None] * len(made.operands)
        types = call_types([v.type for v in operands if v is not None], {"fn": pair.backward.name}, self.module)
        back = sweep.tape.inserted(Node("call", operands, {"fn": pair.backward.name}, types, sweep.tape.origin))
        for name, gradient in zip(pair.weights, back.results[len(pair.gradients) :], strict=True):
            sweep.add_weight(name, gradient)
        found = dict(zip(pair.gradients, back.results, strict=False))
        return [found.get(i) for i in range(len(made.operands))]

    def drop_originals(self) -> None:
        """Take out the functions that were differentiated and that nobody calls any more."""
        reached = {graph.name for graph in callers_first(self.module)}
        for name in dict.fromkeys(key[0] for key in self.pairs):
            if name not in reached:
                del self.module.functions[name]

    def exchange(self, graph: Graph, node: Node, pair: Pair) -> Node:
        """Put a call of the forward function in the place of ``node``."""
        types = call_types([v.type for v in node.operands if v is not None], {"fn": pair.forward.name}, self.module)
        made = graph.insert(Node("call", node.operands, {"fn": pair.forward.name}, types, node.origin), node)
        for result, name in zip(made.results, pair.forward.output_names, strict=True):
            result.name = name
        for old, new in zip(node.results, made.results, strict=False):
            new.name = old.name
            old.replace_with(new)
        graph.erase(node)
        return made

    def differentiate(self, name: str, wanted: Wanted, counts: tuple[bool, ...]) -> Pair:
        """The forward and backward functions of one function."""
        number = 1 + sum(key[0] == name for key in self.pairs)
        suffix = "" if number == 1 else str(number)
        forward = copied(self.module.functions[name], f"{name}.fwd{suffix}")
        backward = Graph(f"{name}.bwd{suffix}")
        sweep = Sweep(forward, backward, self.activity.varied(forward, wanted), self.call)
        dys = [
            (v, Value(v.type, None, 0, f"d_{forward.output_names[i]}"))
            for i, v in enumerate(forward.outputs)
            if counts[i]
        ]
        sweep.run(list(forward), dys)
        self.failures += sweep.failures
        found = [sweep.gradient(v) for v in forward.inputs]
        given = [i for i, g in enumerate(found) if g is not None]
        outputs = [g for g in found if g is not None] + list(sweep.weights.values())
        backward.set_outputs(
            outputs, [f"d_{forward.inputs[i].name}" for i in given] + [f"d_{n}" for n in sweep.weights]
        )
        return self.split(forward, backward, sweep, [dy for _, dy in dys], counts, given)

    def split(
        self,
        forward: Graph,
        backward: Graph,
        sweep: Sweep,
        dys: list[Value],
        counts: tuple[bool, ...],
        given: list[int],
    ) -> Pair:
        """Give backward what it reads of forward as inputs, and let forward return it."""
        roots: dict[Value, Value] = {}

        def across(v: Value) -> Value:
            return roots.setdefault(v, Value(v.type, None, 0, v.name or f"kept{len(roots)}"))

        prune(backward, sweep.tape.made)
        made = list(backward)
        Crossing(forward, backward, made, dys, across).run()
        for v in unbound(forward, backward, [*roots, *dys]):
            across(v)
        inputs = [v for v in forward.inputs if v in roots]
        kept = [v for v in roots if v.producer is not None]
        outputs, names = list(forward.outputs), list(forward.output_names)
        for v in kept:
            if v not in outputs:
                outputs.append(v)
                names.append(unique(v.name or (v.producer.op if v.producer else "kept"), names))
        forward.set_outputs(outputs, names)
        backward.inputs = [*(roots[v] for v in (*inputs, *kept)), *dys]
        for i, v in enumerate(backward.inputs):
            v.index = i
        self.module.add(forward)
        self.module.add(backward)
        return Pair(
            forward,
            backward,
            tuple(forward.inputs.index(v) for v in inputs),
            tuple(outputs.index(v) for v in kept),
            tuple(i for i, count in enumerate(counts) if count),
            tuple(given),
            tuple(sweep.weights),
        )


def copied(graph: Graph, name: str) -> Graph:
    """A copy of a function under another name."""
    made = Graph(name)
    copies = {v: made.add_input(v.name, v.type) for v in graph.inputs}
    for node in graph:
        operands = [None if v is None else copies[v] for v in node.operands]
        copy = made.append(node.op, operands, dict(node.attrs), [v.type for v in node.results], node.origin)
        for old, new in zip(node.results, copy.results, strict=True):
            new.name = old.name
            copies[old] = new
    made.set_outputs([copies[v] for v in graph.outputs], graph.output_names)
    return made


def prune(graph: Graph, made: Sequence[Node]) -> None:
    """Erase those of the backward nodes that nobody reads."""
    for node in reversed(made):
        if not any(v.uses for v in node.results):
            graph.erase(node)


def unique(name: str, taken: Sequence[str]) -> str:
    """``name``, numbered if it is taken."""
    number, made = 1, name
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    return made


def unbound(forward: Graph, backward: Graph, given: Sequence[Value]) -> list[Value]:
    """Inputs of forward that backward needs only for the sizes that its other operands do not tell."""
    told = {str(d) for v in given for d in v.type.shape or ()}
    found: list[Value] = []
    for node in backward:
        dims = [d for v in node.results for d in v.type.shape or ()]
        for value in node.attrs.values():
            dims += value if isinstance(value, tuple) else (value,)
        for symbol in (s for d in dims if isinstance(d, Expr) for s in symbols_of(d)):
            if symbol not in told:
                told.add(symbol)
                found += [v for v in forward.inputs if symbol in map(str, v.type.shape or ())][:1]
    return found
