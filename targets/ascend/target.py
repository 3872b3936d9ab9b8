"""The ``Target`` that passes and driver use: an Ascend chip with its code generation and its cycle model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import ITEMSIZE, Kernel
from moec.codegen.lower import lower_module
from moec.codegen.operator_call import OperatorCall
from moec.codegen.program import Copy, Launch, Memset, Program, launch_args
from moec.codegen.project import write_project
from moec.codegen.steps import Bind, Collective, HostOp, Record, Wait
from moec.codegen.workspace import workspace_bytes
from moec.diagnostics import NoKernel, Refusal, Where
from moec.ir.graph import Graph, Module, Node
from moec.ir.symbol import DEFAULT_BOUND, evaluate, symbols_of
from moec.ir.types import DType, TensorType, dtype
from moec.ops.build import Builder
from moec.ops.registry import opdef
from moec.target import KernelTime, Schedule, Sizes, Span
from moec.targets.ascend.aclnn.choose import Chooser
from moec.targets.ascend.aclnn.offer import Offer
from moec.targets.ascend.aclnn.time import call_time
from moec.targets.ascend.cost.cube import DTYPES
from moec.targets.ascend.machine import BUFFERS, Machine, load
from moec.targets.ascend.model.alike import work_of
from moec.targets.ascend.model.result import MODEL_VERSION, KernelResult
from moec.targets.ascend.model.scenario import Scenario
from moec.targets.ascend.model.simulate import SPANS, simulate
from moec.targets.ascend.opmodel.answer import known_op, op_time
from moec.targets.ascend.opmodel.bands import CYCLES
from moec.targets.ascend.opmodel.constants import OP_MODEL_VERSION
from moec.targets.ascend.opmodel.host import host_us
from moec.targets.ascend.opmodel.links import collective_us

TEMPLATES = Path(__file__).parent / "templates"
HOST_RATE = 25e9
"""Bytes a second between card and host, each way: what plan-memory takes where it is told nothing (inferred: no
measurement of the copy engine is published)."""


class AscendTarget:
    """One chip of the dav-c220 family."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.name = machine.name
        self.title = machine.title
        self._timed: dict[Any, KernelTime] = {}
        self._programs: dict[Any, Program | None] = {}

    def capacity(self, space: str) -> int:
        """Usable bytes of an on-chip memory of one core. KeyError for an unknown one."""
        if space not in BUFFERS:
            raise KeyError(f"no memory {space}; there are {', '.join(BUFFERS)}")
        return self.machine.usable(space)

    def computes(self, dtype: DType) -> bool:
        """Whether the cube takes ``dtype`` or the vector unit holds it."""
        return dtype.name in DTYPES or dtype.name in ITEMSIZE

    def capacities(self) -> Capacities:
        """What code generation must know of this chip."""
        spaces = {space.lower(): self.machine.usable(space) for space in BUFFERS}
        return Capacities(self.machine.cores("aic"), self.machine.cores("aiv"), **spaces)

    def estimate(
        self, op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], sizes: Sizes
    ) -> KernelTime:
        """The time of one op alone; where it takes several kernels, of all of them. An op without a kernel is answered
        by the operator model. Refusal where it moves nothing or its operands do not fit into the chip's memory.
        """
        needed = sum(evaluate(t.numel(), sizes) * t.dtype.bits // 8 for t in operands if t is not None)
        memory = int(self.machine["memory.hbm_bytes"])
        if needed > memory:
            what = f"the operands of '{op}' take {needed:,} bytes, {self.title} has {memory:,}"
            raise Refusal(what, Where(node=op), "ask for smaller shapes")
        if not known_op(op):
            return op_time(self.machine, op, operands, attrs, (), sizes)
        program = self._alone(op, operands, attrs, sizes)
        if program is None:
            results = [v.type for v in _one_op(op, operands, attrs).main.outputs]
            return op_time(self.machine, op, operands, attrs, results, sizes)
        times = self.schedule(program, sizes).kernels
        if not times:
            raise Refusal(f"op '{op}' moves and computes nothing", Where(node=op), "ask for an op that has a kernel")
        return _together(times)

    def _alone(
        self, op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], sizes: Sizes
    ) -> Program | None:
        """The program of one op, made once; None where it has no kernel, is a step of the host, or calls a function,
        which it has not here."""
        if "fn" in attrs or opdef(op).cost == "host":
            return None
        key = op, tuple(operands), repr(sorted(attrs.items())), tuple(sorted(sizes.items()))
        if key not in self._programs:
            module = _one_op(op, operands, attrs)
            if missing := [repr(s) for s in module.symbols if s not in sizes]:
                what = f"no size for {', '.join(missing)} in an operand of '{op}'"
                raise Refusal(what, Where(node=op), "give it")
            try:
                self._programs[key] = self.lower(module, sizes)
            except NoKernel:
                self._programs[key] = None
        return self._programs[key]

    def workspace(self, op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], sizes: Sizes) -> int:
        """Bytes that the kernels of one op use besides its operands and results; see ``Target.workspace``."""
        program = self._alone(op, operands, attrs, sizes) if known_op(op) else None
        return workspace_bytes(program, sizes) if program is not None else 0

    def collective(self, op: str, bytes_per_rank: int, ranks: int, *, ranks_per_node: int) -> float:
        """Microseconds of a collective over the modelled links; see ``Target.collective``."""
        return collective_us(self.machine, op, bytes_per_rank, ranks, ranks_per_node)

    def host(self, call: str) -> float:
        """Microseconds of a host call; Refusal for an unknown one."""
        return host_us(call)

    def lower(self, module: Module, tune: Sizes, library: str = "kernels") -> Program:
        """The program of ``module`` for this chip; see ``Target.lower``."""
        if library == "kernels":
            return lower_module(module, self.capacities(), tune)
        chooser = Chooser(partial(self._offer_us, tune), partial(self._own_us, tune) if library == "auto" else None)
        program = lower_module(module, self.capacities(), tune, chooser)
        return replace(program, choices=tuple(chooser.choices))

    def _offer_us(self, tune: Sizes, offer: Offer) -> float:
        """Microseconds of the library's calls for a node, by the operator model, and of what is zeroed before them."""
        sizes = [prod(evaluate(d, tune) for d in v.shape) * ITEMSIZE[v.dtype] for v in offer.zeroed]
        zeroed = sum(self._filled("", size).us for size in sizes)
        return sum(call_time(self.machine, call, tune).us for call in offer.calls) + zeroed

    def _own_us(self, tune: Sizes, whole: Module, node: Node) -> float | None:
        """Microseconds of moec's kernels for a node; None where it has none."""
        operands = [None if v is None else v.type for v in node.operands]
        try:
            module = _one_op(node.op, operands, node.attrs, whole)
            module.symbols.update(whole.symbols)
            return self.schedule(self.lower(module, tune), tune).us
        except Refusal:
            return None

    def emit(self, program: Program, folder: Path) -> None:
        """Write the AscendC project into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        write_project(program, folder, TEMPLATES, self.machine.soc)

    def schedule(self, program: Program, sizes: Sizes, scenario: Scenario | None = None) -> Schedule:
        """Time every step at ``sizes``; expert counts are balanced unless ``scenario`` gives them."""
        times: list[KernelTime] = []
        for step in program.steps:
            if isinstance(step, Memset):
                times.append(self._memset(program, step, sizes))
                continue
            if isinstance(step, Copy):
                times.append(self._copy(program, step, sizes))
                continue
            if isinstance(step, HostOp | Bind | Record | Wait):
                continue  # the host's time is the timeline's
            if isinstance(step, Collective):
                times.append(self._exchange(program, step, sizes))
                continue
            if isinstance(step, OperatorCall):
                times.append(call_time(self.machine, step, sizes))
                continue
            kernel = program.kernel(step.kernel)
            args = _args(step, program, sizes)
            lengths = _lengths(step, program, sizes)
            time = self._kernel(kernel, args, scenario, lengths)
            times.append(replace(time, kernel=kernel.name, nodes=step.nodes))
        banded = tuple(t if t.model == OP_MODEL_VERSION else _banded(t) for t in times)
        return Schedule(self.name, dict(sizes), banded, MODEL_VERSION)

    def _kernel(
        self, kernel: Kernel, args: dict[str, int], scenario: Scenario | None, lengths: dict[str, tuple[int]]
    ) -> KernelTime:
        """The time of ``kernel`` at ``args`` and the lengths that it reads. Without a scenario it is kept: what a pass
        asked with a size as a number, the schedule asks again with the size as an argument."""
        if scenario is not None:
            known = replace(scenario, data={**scenario.data, **lengths})
            return kernel_time(simulate(kernel, self.machine, args, known, spans=SPANS))
        key = work_of(kernel, self.machine, args), tuple(lengths.items())
        if key not in self._timed:
            self._timed[key] = kernel_time(simulate(kernel, self.machine, args, Scenario(lengths), spans=SPANS))
        return self._timed[key]

    def _memset(self, program: Program, step: Memset, sizes: Sizes) -> KernelTime:
        return self._filled(f"memset_{step.tensor}", evaluate(program.tensor(step.tensor).bytes, sizes))

    def _filled(self, name: str, size: int) -> KernelTime:
        """A fill at the rate of HBM, launched like a kernel of one vector core (inferred: not measured)."""
        m = self.machine
        launch = m["launch.aiv_base"] + m["launch.aiv_per_core"]
        cycles = -int(-size * m.hz // m["memory.hbm_rate"])
        work = m.us(cycles)
        return KernelTime(
            name, "dma", 1, cycles, launch + work, launch, size / m["memory.hbm_peak"] * 1e6,
            "HBM" if work > launch else "launch", 0, size, model=MODEL_VERSION,
        )  # fmt: skip

    def _exchange(self, program: Program, step: Collective, sizes: Sizes) -> KernelTime:
        """A collective by the model of the links, between ranks that stand next to each other in nodes."""
        source, target = program.tensor(step.source), program.tensor(step.target)
        group = next(g for g in program.groups if g.name == step.group)
        moved = [TensorType(dtype(t.dtype), t.shape) for t in (source, target)]
        time = op_time(self.machine, step.op, moved[:1], {"group": group}, moved[1:], sizes)
        return replace(time, nodes=step.nodes)

    def _copy(self, program: Program, step: Copy, sizes: Sizes) -> KernelTime:
        """A copy at the rate of its slower end, launched like a kernel of one vector core (inferred: not measured)."""
        m = self.machine
        size = evaluate(program.tensor(step.source).bytes, sizes)
        far = "host" in (program.tensor(step.source).kind, program.tensor(step.target).kind)
        cycles = -int(-size * m.hz // (HOST_RATE if far else m["memory.hbm_rate"] / 2))
        work, launch = m.us(cycles), m["launch.aiv_base"] + m["launch.aiv_per_core"]
        return KernelTime(
            f"copy_{step.target}", "dma", 1, cycles, launch + work, launch,
            size / (HOST_RATE if far else m["memory.hbm_peak"] / 2) * 1e6,
            "launch" if work <= launch else "host" if far else "HBM", 0, size, nodes=step.nodes, model=MODEL_VERSION,
        )  # fmt: skip


def load_target(name: str) -> AscendTarget:
    """The target of that name. Refusal for an unknown one."""
    return AscendTarget(load(name))


def kernel_time(result: KernelResult) -> KernelTime:
    """The model's result in the form that reports take."""
    spans = tuple(Span(i.pipe, i.start, i.stop, i.label) for i in result.intervals)
    return KernelTime(
        result.kernel, result.core, result.blocks, result.cycles, result.us, result.launch_us, result.floor_us,
        result.bound, result.flops, result.hbm_bytes, result.shares, result.source, spans, result.version,
    )  # fmt: skip


def _banded(time: KernelTime) -> KernelTime:
    """A kernel's time with the cycle model's band, which ends at what the hardware allows."""
    low = max(time.us * CYCLES.low, min(time.us, time.floor_us + time.launch_us))
    return replace(time, low_us=low, high_us=time.us * CYCLES.high, confidence=CYCLES.confidence)


def _args(launch: Launch, program: Program, sizes: Sizes) -> dict[str, int]:
    try:
        return launch_args(launch, program.kernel(launch.kernel), sizes)
    except ValueError as error:
        raise Refusal(str(error), Where(node=", ".join(launch.nodes)), "choose sizes within the bounds") from None


def _lengths(launch: Launch, program: Program, sizes: Sizes) -> dict[str, tuple[int]]:
    """What a launch reads of lengths: what ``sizes`` says, else the most there may be."""
    most = {x.symbol: x.most for x in program.lengths}
    return {p: (sizes[s] if s in sizes else evaluate(most[s], sizes),) for p, s in launch.lengths}


def _one_op(
    op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], whole: Module | None = None
) -> Module:
    """A module whose main function is ``op`` on inputs of the given types; results without elements are not returned,
    as kernels do not write them. A function that the op calls comes from ``whole``.
    """
    module = Module()
    graph = module.add(Graph("main"))
    values = [None if t is None else graph.add_input(f"x{i}", t) for i, t in enumerate(operands)]
    try:
        if whole is not None and "fn" in attrs:
            module.functions[attrs["fn"]] = whole.functions[attrs["fn"]]
            results = Builder(graph).call(module, attrs["fn"], *values, op=op)
        else:
            results = tuple(Builder(graph).node(op, *values, **attrs).results)
    except ValueError as error:
        raise Refusal(str(error), Where(node=op), "`moec ops` lists ops, operands and attributes") from None
    for symbol in (s for v in (*graph.inputs, *results) for d in v.type.dims for s in symbols_of(d)):
        module.symbols.setdefault(symbol, DEFAULT_BOUND)
    made = [r for r in results if 0 not in r.type.dims]  # what a gradient has none of is empty, and has no tensor
    graph.set_outputs(made, [f"y{i}" for i in range(len(made))])
    return module


def _together(times: Sequence[KernelTime]) -> KernelTime:
    """Kernels one after the other as one entry; bound, busy shares and spans are those of the longest."""
    if len(times) == 1:
        return times[0]
    longest = max(times, key=lambda t: t.us)
    return replace(
        longest,
        kernel=" + ".join(t.kernel for t in times),
        cycles=sum(t.cycles for t in times),
        us=sum(t.us for t in times),
        launch_us=sum(t.launch_us for t in times),
        floor_us=sum(t.floor_us for t in times),
        low_us=sum(t.low_us for t in times),
        high_us=sum(t.high_us for t in times),
        flops=sum(t.flops for t in times),
        bytes=sum(t.bytes for t in times),
    )
