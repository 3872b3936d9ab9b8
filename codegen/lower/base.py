"""The lowering context: what a rule for an op may ask for and add, and the walk over the main function.

A rule is ``@lowering("op")`` on a function of (context, node). It builds kernels with KernelBuilder and launches them:

    @lowering("relu")
    def relu(cx: Lowering, node: Node) -> None:
        kernel = relu_kernel(cx.capacities, ...)
        cx.launch(node, kernel, {"x": cx.tensor(node.operand(0)), "y": cx.result(node)}, {"n": elements})
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, Kernel
from moec.codegen.lengths import Length, read_by, reading, upper
from moec.codegen.program import Copy, Launch, Memset, Output, Program, Step, Tensor, accesses
from moec.codegen.steps import COMPUTE, COPY
from moec.codegen.streams import with_events
from moec.diagnostics import NoKernel, Problem, Refusal, Where
from moec.ir.data import TensorData
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.group import Group
from moec.ir.symbol import Bounds, Dim, bounds, evaluate, symbols_of
from moec.ir.types import DType
from moec.ops.build import Builder
from moec.ops.calls import names_in
from moec.ops.registry import OPS

Rule = Callable[["Lowering", Node], None]
Library = Callable[["Lowering", Node], bool]
"""Lowers a node to calls of the vendor's library where it chooses to; whether it did."""
RULES: dict[str, Rule] = {}
FAMILIES = (
    "adamw",
    "attention",
    "attention_grad",
    "balance",
    "collectives",
    "compress",
    "counted",
    "cube",
    "cube_grad",
    "cumsum",
    "elementwise",
    "extremes",
    "fetch",
    "gating",
    "gating_grad",
    "labels",
    "histogram",
    "host",
    "moves",
    "permute",
    "reductions",
    "rope",
    "series",
    "sort",
    "sums",
    "swap",
    "swiglu",
    "swiglu_grad",
    "triangle",
    "unpermute",
    "unpermute_grad",
    "vector",
    "views",
)
"""Modules of this package that hold rules; those that exist are loaded."""
ON_HOST = ("dims", "to_device", "read_start", "swap_out", "swap_in")
"""Ops of the device whose sizes the host must know all the same: it makes or takes what they move."""


def lowering(op: str) -> Callable[[Rule], Rule]:
    """Registers the rule for ``op``."""

    def register(rule: Rule) -> Rule:
        if op in RULES:
            raise ValueError(f"op {op} has two lowering rules")
        RULES[op] = rule
        return rule

    return register


def load_rules() -> None:
    """Imports every family, so that RULES is full."""
    for family in FAMILIES:
        name = f"moec.codegen.lower.{family}"
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise


def device_dtype(dtype: DType) -> str:
    """The kernel IR's name of a layer dtype; bool is one byte. NoKernel for what no kernel can hold."""
    name = "u8" if dtype.name == "bool" else dtype.name
    if name not in ITEMSIZE:
        raise NoKernel(f"no kernel holds {dtype.name}", todo=f"cast it first to one of {', '.join(ITEMSIZE)}")
    return name


def identifier(text: str) -> str:
    """``text`` made a C++ identifier."""
    clean = re.sub(r"\W+", "_", text).strip("_") or "t"
    return f"t_{clean}" if clean[0].isdigit() else clean


class Lowering:
    """Collects the program while the rules run."""

    def __init__(self, module: Module, capacities: Capacities, tune: Mapping[str, int], library: Library | None = None):
        self.module, self.capacities, self.tune, self.operators = module, capacities, dict(tune), library
        self._storage: dict[Value, str] = {}
        self._tensors: dict[str, Tensor] = {}
        self._kernels: dict[Kernel, str] = {}
        self._emitted: dict[str, Kernel] = {}
        self._names: set[str] = set()
        self._kernel_names: set[str] = set()
        self._tables: dict[str, str] = {}
        self.forms: dict[tuple[str, Value], str] = {}  # buffers that hold a value in another dtype, by what it is for
        self.steps: list[Step] = []
        self.groups: dict[str, Group] = {}
        self.lengths: dict[str, Length] = {}
        self.to_device = set[str]() if library is not None else left_to_the_device(module)

    # -- tensors

    def _unique(self, name: str, taken: set[str]) -> str:
        base, n = identifier(name), 2
        unique = base
        while unique in taken:
            unique, n = f"{base}_{n}", n + 1
        taken.add(unique)
        return unique

    def _new(
        self, name: str, dtype: str, shape: Sequence[Dim], kind: str, source: str = "", data: TensorData | None = None
    ) -> str:
        t = Tensor(self._unique(name, self._names), dtype, tuple(shape), kind, source, data)
        self._tensors[t.name] = t
        return t.name

    def tensor(self, value: Value) -> str:
        """The device buffer that holds ``value``."""
        return self._storage[value]

    def result(self, node: Node, index: int = 0) -> str:
        """The device buffer for a result of ``node``, made on first use."""
        value = node.results[index]
        if value not in self._storage:
            name = value.name or f"{node.op}{index or ''}"
            self._storage[value] = self._new(name, device_dtype(value.type.dtype), value.type.dims, "temp")
        return self._storage[value]

    def alias(self, view: Value, of: Value) -> None:
        """``view`` is the same bytes as ``of`` (a reshape)."""
        self._storage[view] = self._storage[of]

    def scratch(self, name: str, dtype: str, shape: Sequence[Dim]) -> str:
        """A temporary device buffer that stands for no value."""
        return self._new(name, dtype, shape, "temp")

    def constant(self, node: Node, name: str, data: TensorData | None) -> None:
        """The result of ``node`` is a weight; without data it is read at run time."""
        value = node.result
        self._storage[value] = self._new(name, device_dtype(value.type.dtype), value.type.dims, "weight", name, data)

    def table(self, name: str, data: TensorData) -> str:
        """A constant that stands for no value; one of a name serves all that ask for it."""
        if name not in self._tables:
            self._tables[name] = self._new(name, device_dtype(data.dtype), data.shape, "weight", name, data)
        return self._tables[name]

    # -- sizes

    def size(self, dim: Dim) -> int:
        """A number for ``dim`` to choose tiles for: the tuned size, else a typical one within its bounds."""
        env = {s: self.tune.get(s, min(4096, self.module.symbols[s][1])) for s in symbols_of(dim)}
        return evaluate(dim, env)

    def bounds(self, dim: Dim) -> Bounds:
        """The least and greatest value of ``dim``."""
        return bounds(dim, self.module.symbols)

    # -- steps

    def launch(
        self, node: Node, kernel: Kernel, operands: Mapping[str, str], args: Mapping[str, Dim], when: Dim = 1
    ) -> None:
        """Adds a launch of ``kernel``, which does nothing where ``when`` is 0; an equal kernel already there is used
        again. Lengths that the device knows are read by the kernel.
        """
        lengths: list[tuple[str, str]] = []
        args = {a.name: args[a.name] for a in kernel.args}
        if read_by([*args.values(), when], self.lengths):
            kernel, more, args, lengths = self._reading(kernel, operands, args, when)
            operands, when = {**operands, **more}, upper(when, self.lengths)
        key = replace(kernel, name="", source=())
        if key not in self._kernels:
            self._kernels[key] = self._unique(kernel.name, self._kernel_names)
        for p in kernel.params:
            have = self._tensors[operands[p.name]].dtype
            if have != p.dtype:
                raise ValueError(
                    f"kernel {kernel.name}: {p.name} is {p.dtype}, the tensor {operands[p.name]} is {have}"
                )
        pairs = tuple((p.name, operands[p.name]) for p in kernel.params)
        numbers = tuple((a.name, args[a.name]) for a in kernel.args)
        counted = tuple((p, s) for p, s in lengths)
        self.steps.append(Launch(self._kernels[key], pairs, numbers, (node_name(node),), when=when, lengths=counted))
        name = self._kernels[key]
        self._emitted.setdefault(name, replace(kernel, name=name, source=(node_name(node),)))

    def _reading(
        self, kernel: Kernel, operands: Mapping[str, str], args: Mapping[str, Dim], when: Dim
    ) -> tuple[Kernel, dict[str, str], dict[str, Dim], list[tuple[str, str]]]:
        """``kernel`` as one that reads its lengths, and does nothing where there is nothing to write."""
        written = [self._tensors[operands[p.name]].elements for p in kernel.params if p.direction != "in"]
        conditions = [when]
        if all(read_by([n], self.lengths) for n in written):
            conditions.append(sum(written[1:], written[0]))
        dtypes = {x.tensor: self._tensors[x.tensor].dtype for x in self.lengths.values()}
        table = self.module.symbols
        made, more, given = reading(kernel, args, conditions, self.lengths, dtypes, table)
        symbols = {x.tensor: s for s, x in self.lengths.items()}
        return made, more, given, [(p, symbols[t]) for p, t in more.items()]

    def length(self, node: Node, symbol: str, low: int, most: Dim) -> None:
        """From here on ``symbol`` is the number in the operand of ``node``, which the device knows: no more than
        ``most``."""
        tensor = self.tensor(node.operand(0))
        self.lengths[symbol] = Length(symbol, tensor, low, upper(most, self.lengths), (node_name(node),))

    def memset(self, tensor: str) -> None:
        """Zeroes ``tensor`` before the following launches."""
        self.steps.append(Memset(tensor))

    def parked(self, node: Node) -> str:
        """A buffer of host memory for the result of ``node``."""
        value = node.result
        name = value.name or f"{node.op}_host"
        self._storage[value] = self._new(name, device_dtype(value.type.dtype), value.type.dims, "host")
        return self._storage[value]

    def stored(self, value: Value, tensor: str) -> None:
        """``value`` lies in ``tensor``."""
        self._storage[value] = tensor

    def host_tensor(self, value: Value, name: str) -> str:
        """A buffer of host memory for what ``value`` says the dtype and shape of."""
        return self._new(value.name or name, device_dtype(value.type.dtype), value.type.dims, "host")

    def on_host(self, node: Node, value: Value) -> str:
        """The buffer of host memory that holds ``value``; what the device has is read first."""
        tensor = self._storage[value]
        if self._tensors[tensor].kind != "host":
            made = self.host_tensor(value, f"{tensor}_read")
            self.copy(node, made, tensor, COPY)
            return made
        return tensor

    def place(self, node: Node, group: str) -> None:
        """The result of ``node`` is a number that each rank has of its own: its place in ``group``."""
        self._storage[node.result] = self._new(node.result.name or f"{group}_rank", "i64", (), "rank", group)

    def group(self, group: Group) -> None:
        """Ranks exchange over ``group``. NoKernel where its size is not a number."""
        if not (isinstance(group.size, int) and isinstance(group.stride, int)):
            todo = "write its size as a number: a program is for one number of ranks"
            raise NoKernel(Problem(f"group {group.name} is {group}", todo=todo))
        have = self.groups.setdefault(group.name, group)
        if have != group:
            raise Refusal(f"group {group.name} is both {have} and {group}", todo="give them different names")

    def add(self, step: Step) -> None:
        """Adds a step as it is."""
        self.steps.append(step)

    def through(self, node: Node, make: Callable[..., Value]) -> None:
        """Lowers ``node``, of one result, as what ``make`` builds of its operands in its place."""
        graph = Graph(node.op)
        given = []
        for i, value in enumerate(node.operands):
            assert value is not None
            given.append(graph.add_input(f"x{i}", value.type))
            self._storage[given[i]] = self._storage[value]
        made = make(Builder(graph, None, node.origin), *given)
        for inner in graph:
            RULES[inner.op](self, inner)
        self._storage[node.result] = self._storage[made]

    def copy(self, node: Node, target: str, source: str, stream: str = COMPUTE) -> None:
        """Copies one buffer to another of its size; what another stream needs first it waits for."""
        self.steps.append(Copy(target, source, (node_name(node),), stream))

    # -- the walk

    def run(self, graph: Graph) -> Program:
        missing: list[Problem] = []
        lost: set[Value] = set()
        for i, value in enumerate(graph.inputs):
            name = value.name or f"in{i}"
            try:
                dtype = device_dtype(value.type.dtype)
            except NoKernel as refusal:
                missing += [replace(p, where=Where(node=f"input {name}")) for p in refusal.problems]
                lost.add(value)
            else:
                self._storage[value] = self._new(name, dtype, value.type.dims, "input", name)
        problems: list[Problem] = []
        try:
            for shard in (s for given in self.module.shards.values() for s in given):
                self.group(shard.group)
        except NoKernel as refusal:
            missing += refusal.problems
        for node in graph:
            rule = RULES.get(node.op)
            try:
                if any(v in lost for v in node.operands if v is not None):
                    lost.update(node.results)  # what is made of something missing is not looked at, but for its name
                elif self.operators is not None and not missing and not problems and self.operators(self, node):
                    continue
                elif rule is not None:
                    rule(self, node)
                if rule is None:
                    missing.append(Problem(f"op '{node.op}' has no kernel", where(node)))
                    lost.update(node.results)
            except NoKernel as refusal:
                missing += [replace(p, where=where(node)) for p in refusal.problems]
                lost.update(node.results)
            except Refusal as refusal:
                problems += refusal.problems
                lost.update(node.results)
        if missing:
            raise NoKernel(missing)
        if problems:
            raise Refusal(problems)
        for value in graph.outputs:
            if value not in self._storage and value.producer is not None:  # without elements: nobody writes it
                self.result(value.producer, value.producer.results.index(value))
        return Program(
            graph.name,
            dict(self.module.symbols),
            tuple(self._emitted.values()),
            tuple(replace(t, shape=tuple(upper(d, self.lengths) for d in t.shape)) for t in self._tensors.values()),
            tuple(
                Output(name, self._storage[value], value.type.dims)
                for value, name in zip(graph.outputs, graph.output_names, strict=True)
            ),
            tuple(with_events(self.steps, lambda step: accesses(step, self._emitted))),
            {"aic": self.capacities.aic, "aiv": self.capacities.aiv},
            groups=tuple(self.groups.values()),
            shards=tuple((name, s.group.name, s.axis) for name, given in self.module.shards.items() for s in given),
            lengths=tuple(self.lengths.values()),
        )


def left_to_the_device(module: Module) -> set[str]:
    """The sizes of ``device_size`` that kernels alone need: no collective, step of the host or list of numbers names
    them."""
    found = {str(n.attrs["value"]) for n in module.main if n.op == "device_size"}
    for node in module.main if found else ():
        if "collective" in OPS[node.op].traits or OPS[node.op].place == "host" or node.op in ON_HOST:
            found.difference_update(names_in(node, module))
    return found


def node_name(node: Node) -> str:
    """The op and where it came from, for people."""
    origin = str(node.origin)
    return f"{node.op} ({origin})" if origin else node.op


def where(node: Node) -> Where:
    return Where(node=node_name(node))


def lower_module(
    module: Module, capacities: Capacities, tune: Mapping[str, int], library: Library | None = None
) -> Program:
    """The program of the module's main function; ``library`` is asked for each node before its own rule.

    NoKernel names every op without a kernel; Refusal every tile that does not fit.
    """
    load_rules()
    return Lowering(module, capacities, tune, library).run(module.main)
