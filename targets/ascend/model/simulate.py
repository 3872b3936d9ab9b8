"""Times a kernel on a machine: all cores, launch, floor, what bounds it.

Two runs: the first counts bytes and says what each pool of device memory has to serve, the second times. Cores share
what has been simulated already, so cores with equal work cost a look-up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from moec.codegen.instructions import Resolved
from moec.codegen.kernel_ir import ITEMSIZE, Kernel
from moec.codegen.scalar import Env, evaluate
from moec.diagnostics import Refusal, Where
from moec.targets.ascend.cost.cube import DTYPES
from moec.targets.ascend.cost.instruction import instruction_cost
from moec.targets.ascend.cost.vector import conflicts
from moec.targets.ascend.machine import Machine
from moec.targets.ascend.model.cores import run_cores
from moec.targets.ascend.model.engine import POOLS, QUEUED, Engine, Timed
from moec.targets.ascend.model.nodes import InstrNode, Program
from moec.targets.ascend.model.pools import Pools, Traffic, share_out
from moec.targets.ascend.model.program import compile_kernel
from moec.targets.ascend.model.result import Interval, KernelResult, bound_by
from moec.targets.ascend.model.runner import Memory, Runner
from moec.targets.ascend.model.scenario import COUNTS_ROLE, Scenario, shape_of

SPANS = 400
"""Instructions of the shown core that keep their intervals."""
Key = tuple[str, bool]
"""A parameter and whether it is written."""


class Counters:
    """Where each figure of an instruction is counted in the engine's list."""

    def __init__(self, program: Program):
        names: list[tuple[str, Any]] = (
            [("path", p) for p in program.paths] + [("flops", d) for d in program.dtypes] + [("lanes", "")]
        )
        names += [("count", n) for n in sorted({n.spec.name for n in program.instructions})]
        for tensor in program.tensors:
            for written in (False, True):
                names += [("asked", (tensor, written)), ("moved", (tensor, written))]
        self.index: dict[tuple[str, Any], int] = {name: i for i, name in enumerate(names)}


class CostTable:
    """Instructions as the engine takes them, by what their cost depends on; ``pools`` None: no limit by the pools."""

    def __init__(self, machine: Machine, counters: Counters, pools: Pools | None):
        self.machine, self.counters, self.pools = machine, counters, pools
        self.known: dict[tuple[int, tuple[Any, ...]], Timed] = {}

    def timed(self, node: InstrNode, key: tuple[Any, ...]) -> Timed:
        """The instruction ``node`` with the numbers ``key`` (see InstrNode)."""
        found = self.known.get((node.uid, key))
        if found is None:
            found = self.known[node.uid, key] = self._timed(node, key)
        return found

    def _timed(self, node: InstrNode, key: tuple[Any, ...]) -> Timed:
        *numbers, offset, distance = key
        params = {**node.fixed, **dict(zip(node.names, numbers, strict=True))}
        conflict = distance >= 0 and conflicts(self.machine, distance) if node.banked else None
        resolved = Resolved(node.spec.name, node.dtypes, params)
        cost = instruction_cost(self.machine, node.spec, resolved, node.path, int(offset), conflict)
        index = self.counters.index
        counts = [(index["count", node.spec.name], 1)]
        if node.path:
            counts.append((index["path", node.path], cost.bytes))
        if cost.macs:
            counts.append((index["flops", node.dtypes["a"]], cost.macs))
        if cost.lanes:
            counts.append((index["lanes", ""], cost.lanes))
        pool = (0, 0)
        if node.tensor and node.path:
            tensor = (node.tensor, node.writes)
            counts += [(index["asked", tensor], cost.bytes), (index["moved", tensor], cost.moved)]
            if self.pools is not None:
                pool = self.pools.need(tensor, cost.moved)
        return Timed(node.pipe, cost.busy, cost.latency, pool, tuple(c for c in counts if c[1]), node.spec.name)


class Tally(Engine):
    """Counts without time: every state is the same."""

    def issue(self, instr: Timed, cycles: int) -> None:
        for counter, amount in instr.counts:
            self.counters[counter] += amount

    def wait_flag(self, src: int, dst: int, event: int) -> None:
        pass

    def set_flag(self, src: int, dst: int, event: int) -> None:
        pass

    def canonical(self) -> tuple[Any, ...]:
        return ()

    def restore(self, state: tuple[Any, ...]) -> None:
        pass


class Enough(Exception):
    """The recorder has what it was asked for."""


class Recorder(Engine):
    """Keeps the first ``limit`` intervals."""

    def __init__(self, depths: list[int], counters: int, limit: int):
        super().__init__(depths, counters)
        self.record = []
        self.limit = limit

    def issue(self, instr: Timed, cycles: int) -> None:
        super().issue(instr, cycles)
        if self.record is not None and len(self.record) >= self.limit:
            raise Enough


def simulate(
    kernel: Kernel, machine: Machine, args: Mapping[str, int], scenario: Scenario | None = None, remember: bool = True,
    spans: int = 0,
) -> KernelResult:  # fmt: skip
    """Times ``kernel`` at ``args`` on ``machine``.

    ``remember`` False simulates every instruction (same result, slower). ``spans`` > 0 keeps that many intervals of the
    slowest core. Raises Refusal for an argument that is missing or a kernel whose flags do not match.
    """
    missing = [a.name for a in kernel.args if a.name not in args]
    if missing:
        raise Refusal(f"kernel {kernel.name} needs {', '.join(missing)}", Where(node=kernel.name), "give every size")
    scenario = scenario or Scenario()
    if kernel.core not in ("aic", "aiv"):
        raise Refusal(
            f"kernel {kernel.name} is for {kernel.core} cores", Where(node=kernel.name), "split it by core kind"
        )
    wanted = int(evaluate(kernel.blocks, Env({}, args, {})))
    blocks = max(1, min(wanted, machine.cores(kernel.core)))
    tables = scenario.tables(kernel, args)

    def read(tensor: str, element: int) -> int | float:
        table = tables.get(tensor, ())
        return table[element] if 0 <= element < len(table) else 0  # a key may look past the end of what is read

    program = compile_kernel(kernel, machine, args, blocks, read)
    counters = Counters(program)
    depths = [int(machine[f"queues.{pipe}"]) for pipe in QUEUED]
    issue, flag = int(machine["scalar.issue"]), int(machine["sync.flag"])

    def run(pools: Pools | None, make: Callable[[], Engine], cores: range, keep: bool) -> list[Engine]:
        costs = CostTable(machine, counters, pools)
        memory = Memory() if keep else None
        runners = [Runner(program, make(), costs, issue, flag, memory, {"idx": c, "sub": 0}) for c in cores]
        run_cores(kernel.name, runners, int(machine["sync.sync_all"]), int(machine["sync.cross_core"]))
        return [r.engine for r in runners]

    size = len(counters.index)
    tallies = run(None, lambda: Tally(depths, size), range(blocks), remember)
    traffic = _traffic(kernel, args, tables, counters, tallies)
    pools = share_out(machine, traffic)
    engines = run(pools, lambda: Engine(depths, size), range(blocks), remember)
    ends = tuple(e.end() for e in engines)
    slowest = engines[ends.index(max(ends))]
    intervals: tuple[Interval, ...] = ()
    if spans:
        recorder = Recorder(depths, size, spans)
        with contextlib.suppress(Enough):
            run(pools, lambda: recorder, range(ends.index(max(ends)), ends.index(max(ends)) + 1), False)
        intervals = tuple(Interval(QUEUED[p], a, b, label) for p, a, b, label in recorder.record or ())
    return _result(kernel, machine, program, counters, pools, tallies, slowest, ends, intervals)


def _traffic(
    kernel: Kernel, args: Mapping[str, int], tables: Mapping[str, Any], counters: Counters, tallies: list[Engine]
) -> dict[Key, Traffic]:
    """Traffic by parameter and direction. Of weights stacked over experts only those of experts with rows count."""
    live: dict[int, int] = {}
    for p in kernel.params:
        if p.role == COUNTS_ROLE and p.name in tables:
            live[len(tables[p.name])] = sum(1 for n in tables[p.name] if n)
    out: dict[Key, Traffic] = {}
    for p in kernel.params:
        shape = shape_of(p, args)
        size = prod(shape) * ITEMSIZE[p.dtype]
        if p.role == "weight" and len(shape) > 1 and shape[0] in live:
            size = size // max(1, shape[0]) * live[shape[0]]
        for written in (False, True):
            key = (p.name, written)
            asked, moved = counters.index["asked", key], counters.index["moved", key]
            traffic = Traffic(
                tuple(t.counters[asked] for t in tallies), tuple(t.counters[moved] for t in tallies), size
            )
            if sum(traffic.asked):
                out[key] = traffic
    return out


def _result(
    kernel: Kernel, machine: Machine, program: Program, counters: Counters, pools: Pools, tallies: list[Engine],
    slowest: Engine, ends: tuple[int, ...], intervals: tuple[Interval, ...],
) -> KernelResult:  # fmt: skip
    index = counters.index

    def total(kind: str, key: Any) -> int:
        return sum(t.counters[index[kind, key]] for t in tallies)

    cube = {d: total("flops", d) for d in program.dtypes}
    lanes = total("lanes", "")
    wide = max((ITEMSIZE[p.dtype] for p in kernel.params), default=4)
    floor = max(
        sum(f / machine.peak_flops(DTYPES[d]) for d, f in cube.items()),
        lanes / (machine["vector.repeat_bytes"] * machine.cores("aiv") * machine.hz),
        pools.hbm_bytes / machine["memory.hbm_peak"],
        pools.l2_bytes / machine["memory.l2_peak"],
    )
    launch = machine[f"launch.{kernel.core}_base"] + machine[f"launch.{kernel.core}_per_core"] * len(ends)
    cycles = max(ends)
    us = launch + machine.us(cycles)
    busy = dict(zip((*QUEUED, "S"), slowest.busy, strict=True))
    stalls = dict(zip(POOLS, slowest.stalls, strict=True))
    moving = frozenset(QUEUED[n.pipe] for n in program.instructions if n.tensor and n.path)
    return KernelResult(
        kernel.name, kernel.core, machine.name, len(ends), cycles, us, launch, floor * 1e6,
        bound_by(cycles, us, launch, busy, stalls, moving), busy, stalls,
        {p: total("path", p) for p in program.paths}, pools.hbm_bytes, pools.l2_bytes,
        sum(cube.values()) + lanes // wide, {n: total("count", n) for kind, n in index if kind == "count"}, ends,
        kernel.source, intervals,
    )  # fmt: skip
