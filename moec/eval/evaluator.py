"""The numpy reference: runs a module and is what every other stage is compared with.

16-bit and narrower floats are up-cast to f32 for each op, sums accumulate in f32, and each result is rounded once to
its declared dtype. In
fp64 mode every float is an f64 and nothing is rounded. Symbols are bound by the inputs' shapes; a data-dependent one
by the op that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from moec.diagnostics import Problem, Refusal, Where
from moec.eval.binding import Env, bind, bind_dim, bound_text, concrete
from moec.eval.control import run_control
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.symbol import Dim, bounds
from moec.ir.types import TensorType
from moec.ops.registry import OPS

Array = np.ndarray
Observer = Callable[[Node, list[Array]], None]


def run(
    module: Module,
    inputs: Mapping[str, Array],
    weights: Mapping[str, Array] | None = None,
    *,
    fp64: bool = False,
    observe: Observer | None = None,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """The outputs of ``main`` by name, for inputs by name; ``weights`` gives those that have no data of their own.

    Outputs are in their declared dtypes' carriers (f64 for floats in fp64 mode). ``observe`` is called after each
    node of ``main`` (of rank 0's). Where groups of ranks run the module, every rank is run; see ``moec.eval.ranks`` for
    their inputs, and outputs are named ``rank0.y``, ``rank1.y``, ... ``sizes`` gives symbols that no input has.
    Raises Refusal for missing or ill-shaped inputs and for a node that cannot be run, with its origin.
    """
    from moec.eval.ranks import groups, run_ranks

    if groups(module):
        results = run_ranks(module, inputs, weights or {}, fp64=fp64, observe=observe, sizes=sizes)
        return {f"rank{rank}.{name}": a for rank, outputs in enumerate(results) for name, a in outputs.items()}
    return Evaluator(module, weights or {}, fp64, observe, sizes).main(inputs)


class Evaluator:
    """Runs functions of one module; holds the weights, the mode, and which ``rank`` it is."""

    rank = 0

    def __init__(
        self,
        module: Module,
        weights: Mapping[str, Array],
        fp64: bool,
        observe: Observer | None = None,
        sizes: Mapping[str, int] | None = None,
    ):
        self.module, self.weights, self.fp64, self.observe = module, weights, fp64, observe
        self.sizes = dict(sizes or {})

    def main(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Bind inputs by name and run ``main``."""
        graph = self.module.main
        env: Env = dict(self.sizes)
        problems = [p for v in graph.inputs if (p := self._check_input(v, inputs))]
        if problems:
            raise Refusal(problems)
        arrays = [self._taken(inputs[v.name], v.type) for v in graph.inputs]
        for v, a in zip(graph.inputs, arrays, strict=True):
            if v.type.dtype.kind != "opaque" and not bind(v.type, a.shape, env):
                raise Refusal(f"input '{v.name}' has shape {list(a.shape)}, expected {v.type}" + bound_text(env))
        for name, (low, high) in self.module.symbols.items():
            if name in env and not low <= env[name] <= high:
                raise Refusal(
                    f"{name} = {env[name]} is outside [{low}, {high}]",
                    Where(),
                    f"give inputs with {name} in that range",
                )
        return dict(zip(graph.output_names, self.function(graph, arrays, env), strict=True))

    @staticmethod
    def _check_input(v: Value, inputs: Mapping[str, Array]) -> Problem | None:
        if v.name not in inputs:
            return Problem(
                f"input '{v.name}' ({v.type}) is not given",
                Where(),
                f"given are: {', '.join(sorted(inputs)) or 'none'}",
            )
        wanted = v.type.dtype
        if wanted.kind == "opaque":
            return None
        given = np.asarray(inputs[v.name])
        if wanted.is_float != (given.dtype.kind in "fV") and given.dtype.kind != "V":
            return Problem(f"input '{v.name}' is {given.dtype}, expected {wanted}")
        return None

    def _taken(self, given: Any, type_: TensorType) -> Any:
        """An input as values are kept; a sequence or string as it came."""
        return given if type_.dtype.kind == "opaque" else self._stored(np.asarray(given), type_)

    def _stored(self, array: Array, type_: TensorType) -> Array:
        """The array as values are kept between nodes: the declared carrier, or f64 for floats in fp64 mode."""
        carrier = np.dtype(np.float64) if self.fp64 and type_.dtype.is_float else type_.dtype.carrier
        with np.errstate(over="ignore", invalid="ignore"):
            return array if array.dtype == carrier else array.astype(carrier)

    def function(self, graph: Graph, args: list[Array], env: Env) -> list[Array]:
        """Run one function on arrays already stored in their dtypes, with symbols bound so far."""
        values: dict[Value, Array] = dict(zip(graph.inputs, args, strict=True))
        uses = {v: sum(v.uses.values()) for v in graph.inputs}
        for node in graph:
            operands = [None if v is None else values[v] for v in node.operands]
            results = self.node(node, operands, env)
            for v, array in zip(node.results, results, strict=True):
                values[v], uses[v] = array, sum(v.uses.values())
            if self.observe is not None and graph is self.module.main:
                self.observe(node, results)
            for read in node.operands:
                if read is not None:
                    uses[read] -= 1
                    if not uses[read]:
                        values.pop(read, None)
        return [values[v] for v in graph.outputs]

    def node(self, node: Node, operands: list[Array | None], env: Env) -> list[Array]:
        """Run one node on stored arrays; its results stored in their declared dtypes."""
        try:
            op = OPS[node.op]
            given: list[Any] = [a for a, v in zip(operands, node.operands, strict=True) if v is not None]
            if node.op == "host":
                graph = self.module.functions[node.attrs["fn"]]
                return self.function(graph, given, env)
            if "call" in op.traits:
                return self.call(node.attrs["fn"], given, env)
            if "control" in op.traits:
                return self._bound(node, run_control(node, operands, self, env), env)
            attrs = {k: concrete(v, env) for k, v in node.attrs.items()}
            if node.op == "weight" and node.attrs["name"] in self.weights:
                raw: Any = self.weights[node.attrs["name"]]
            elif "collective" in op.traits:
                raw = self.exchange(node, [self._computed(a) for a in operands], attrs)
            elif "ranked" in op.traits:
                raw = op.ref(*map(self._computed, operands), **attrs, rank=self.rank)
            else:
                raw = op.ref(*map(self._computed, operands), **attrs)
            if op.binds:
                self._bind_size(node.attrs[op.binds], int(raw), env)
            return self._bound(node, list(raw) if isinstance(raw, tuple) else [raw], env)
        except (ValueError, KeyError, IndexError, TypeError, MemoryError, OverflowError) as error:
            if isinstance(error, KeyError):
                error = ValueError(f"size {error} is not known when this node runs")
            raise Refusal(f"cannot evaluate {node.op}: {error}", Where(node=str(node.origin))) from error

    def exchange(self, node: Node, operands: list[Array | None], attrs: dict[str, Any]) -> Any:
        """What this rank gets of a collective; here it is a group of its own."""
        size = attrs["group"].size
        if size != 1:
            raise ValueError(f"one rank alone has no group of {size}")
        return OPS[node.op].ref(*[[a] for a in operands], **attrs)[0]

    def _bind_size(self, dim: Dim, size: int, env: Env) -> None:
        """Let ``dim`` be ``size``; ValueError where it is known to be another or outside its bounds."""
        if not bind_dim(dim, size, env):
            raise ValueError(f"the size {size} is not {dim}" + bound_text(env))
        low, high = bounds(dim, self.module.symbols)
        if not low <= size <= high:
            raise ValueError(f"the size {dim} = {size} is outside [{low}, {high}]")

    def _bound(self, node: Node, raw: list[Any], env: Env) -> list[Array]:
        """Results as they are stored, with the sizes that they tell bound; ValueError where one is not as declared."""
        if len(raw) != len(node.results):
            raise ValueError(f"{len(raw)} results, {len(node.results)} declared")
        stored = []
        for v, item in zip(node.results, raw, strict=True):
            if v.type.dtype.kind == "opaque":
                stored.append(item)
                continue
            array = np.asarray(item)
            if not bind(v.type, array.shape, env):
                raise ValueError(f"result has shape {list(array.shape)}, declared {v.type}" + bound_text(env))
            stored.append(self._stored(array, v.type))
        return stored

    def call(self, name: str, args: list[Array], outer: Env) -> list[Array]:
        """The results of the module's function ``name`` on stored arrays; it may use the caller's sizes."""
        fn = self.module.functions[name]
        env: Env = {}
        for v, a in zip(fn.inputs, args, strict=True):
            if v.type.dtype.kind != "opaque" and not bind(v.type, a.shape, env):
                raise ValueError(
                    f"function {fn.name}: '{v.name}' has shape {list(a.shape)}, expected {v.type}" + bound_text(env)
                )
        return self.function(fn, args, {**outer, **env})

    def _computed(self, array: Array | None) -> Array | None:
        """The array in the dtype that references compute in."""
        if array is None or not isinstance(array, np.ndarray) or array.dtype.kind not in "fV":
            return array
        if array.dtype in (np.float32, np.float64):
            return array
        return array.astype(np.float32)
