"""Times a kernel on a machine: all cores, launch, floor, what bounds it.

Two runs: the first counts bytes and says what each pool of device memory has to serve, the second times. Cores share
what has been simulated already, so cores with equal work cost a look-up.
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from moec.codegen.instructions import Resolved
from moec.codegen.kernel_ir import ITEMSIZE, CrossCoreSet, GmRef, Instr, Kernel, SyncAll, statements
from moec.codegen.scalar import Env, evaluate
from moec.diagnostics import Refusal, Where
from moec.targets.ascend.cost.cube import DTYPES
from moec.targets.ascend.cost.instruction import Distances, InstrCost, instruction_cost
from moec.targets.ascend.machine import Machine
from moec.targets.ascend.model.cores import Seat, Together, run_cores, seats_of
from moec.targets.ascend.model.engine import POOLS, QUEUED, Engine, Timed
from moec.targets.ascend.model.locality import SAMPLED, Locality, locality
from moec.targets.ascend.model.nodes import InstrNode, Program
from moec.targets.ascend.model.order import copies_of
from moec.targets.ascend.model.pools import Key, Pools, Traffic, share_out
from moec.targets.ascend.model.program import compile_kernel
from moec.targets.ascend.model.result import Interval, KernelResult, bound_by
from moec.targets.ascend.model.runner import Counting, Memory, Runner
from moec.targets.ascend.model.scenario import COUNTS_ROLE, Scenario, shape_of

SPANS = 400
"""Instructions of the shown core that keep their intervals."""
KINDS = {"aic": ("aic",), "aiv": ("aiv",), "mix": ("aic", "aiv")}
"""Kinds of cores that run a kernel; the first is what its blocks count."""


class Counters:
    """Where each figure of an instruction is counted in the engine's list."""

    def __init__(self, programs: Sequence[Program]):
        names: list[tuple[str, Any]] = [("path", x) for x in sorted({x for p in programs for x in p.paths})]
        names += [("flops", d) for d in sorted({d for p in programs for d in p.dtypes})]
        names += [("lanes", "")]
        names += [("count", n) for n in sorted({n.spec.name for p in programs for n in p.instructions})]
        for tensor in programs[0].tensors:
            for written in (False, True):
                names += [("asked", (tensor, written)), ("moved", (tensor, written))]
        self.index: dict[tuple[str, Any], int] = {name: i for i, name in enumerate(names)}


class CostTable:
    """Instructions as the engine takes them, by what their cost depends on; ``pools`` None: no limit by the pools.
    ``together`` says how many cores read one line of a parameter at a time, ``passing`` what is read past the L2,
    ``costs`` the costs that are known (the pools do not enter them)."""

    def __init__(
        self, machine: Machine, counters: Counters, pools: Pools | None, together: Mapping[str, Fraction],
        passing: frozenset[str], costs: dict[tuple[int, tuple[Any, ...]], InstrCost],
    ):  # fmt: skip
        self.machine, self.counters, self.pools, self.together = machine, counters, pools, together
        self.passing, self.costs = passing, costs
        self.known: dict[tuple[int, tuple[Any, ...]], Timed] = {}

    def timed(self, node: InstrNode, key: tuple[Any, ...]) -> Timed:
        """The instruction ``node`` with the numbers ``key`` (see InstrNode)."""
        found = self.known.get((node.uid, key))
        if found is None:
            found = self.known[node.uid, key] = self._timed(node, key)
        return found

    def _timed(self, node: InstrNode, key: tuple[Any, ...]) -> Timed:
        *numbers, offset, reads, first, second = key
        past = node.tensor in self.passing and not node.writes
        cost = self.costs.get((node.uid, key))
        if cost is None:
            params = {**node.fixed, **dict(zip(node.names, numbers, strict=True))}
            apart = Distances(int(reads), (int(first), int(second)))
            resolved = Resolved(node.spec.name, node.dtypes, params)
            cost = instruction_cost(self.machine, node.spec, resolved, node.path, int(offset), apart, past)
            self.costs[node.uid, key] = cost
        index = self.counters.index
        counts = [(index["count", node.spec.name], 1)]
        if node.path:
            counts.append((index["path", node.path], cost.bytes))
        if cost.macs:
            counts.append((index["flops", node.dtypes["a"]], cost.macs))
        if cost.lanes:
            counts.append((index["lanes", ""], cost.lanes))
        pool, late, rest = (0, 0), 0, 0
        busy = cost.busy
        if node.shared and node.pipe == QUEUED.index("MTE1"):
            busy = math.ceil(busy * (1 + self.machine["l1.shared"]))
        if node.tensor and node.path:
            tensor = (node.tensor, node.writes)
            counts += [(index["asked", tensor], cost.bytes), (index["moved", tensor], cost.moved)]
            if self.pools is not None:
                pool = self.pools.need(tensor, cost.moved)
                late = self.pools.need(tensor, int(self.machine["memory.write_buffer"]))[0] if node.writes else 0
            together = Fraction(1) if node.writes else self.together.get(node.tensor, Fraction(1))
            if together > 1:
                busy = max(busy, math.ceil(cost.requests * Fraction(self.machine["memory.same_line"]) * together))
            if self.pools is not None and not node.writes:
                shared = 1 if past else together
                rest = math.ceil((1 - self.pools.beyond_rows(tensor, shared)) * max(busy, pool[1]))
        counted = tuple(c for c in counts if c[1]) if self.pools is None else ()
        return Timed(
            node.pipe, busy, cost.latency, pool, counted, node.spec.name, cost.cold,
            cost.piece, late, rest,
        )  # fmt: skip


class Tally(Engine):
    """Counts without time: every state is the same."""

    def __init__(self, depths: Sequence[int], counters: int):
        super().__init__(depths, counters)
        self.applied = np.zeros(counters, np.int64)

    def issue(self, instr: Timed, cycles: int) -> None:
        for counter, amount in instr.counts:
            self.counters[counter] += amount

    def scalar(self, cycles: int) -> None:
        pass

    def wait_flag(self, src: int, dst: int, event: int) -> None:
        pass

    def set_flag(self, src: int, dst: int, event: int) -> None:
        pass

    def barrier(self, pipe: int) -> None:
        pass

    def canonical(self) -> tuple[Any, ...]:
        return ()

    def restore(self, state: tuple[Any, ...]) -> None:
        pass

    def totals(self) -> Any:
        return self.applied + np.array(self.counters, np.int64)

    def since(self, before: Any) -> Any:
        return self.totals() - before

    def add(self, totals: Any, times: int) -> None:
        self.applied += totals if times == 1 else times * totals


class Enough(Exception):
    """The recorder has what it was asked for."""


class Recorder(Engine):
    """Keeps the first ``limit`` intervals."""

    def __init__(self, depths: list[int], handover: int, limit: int):
        super().__init__(depths, 0, handover)
        self.record = []
        self.limit = limit

    def issue(self, instr: Timed, cycles: int) -> None:
        super().issue(instr, cycles)
        if self.record is not None and len(self.record) >= self.limit:
            raise Enough


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """What a simulation keeps has no cycles: looking through it for garbage is time lost."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_uncollected()
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
    kinds = KINDS.get(kernel.core)
    if kinds is None:
        raise Refusal(f"kernel {kernel.name} is for {kernel.core} cores", Where(node=kernel.name), "aic, aiv or mix")
    wanted = int(evaluate(kernel.blocks, Env({}, args, {})))
    blocks = max(1, min(wanted, machine.cores(kinds[0])))
    tables = scenario.tables(kernel, args)

    def read(tensor: str, element: int) -> int | float:
        table = tables.get(tensor, ())
        return table[element] if 0 <= element < len(table) else 0  # a key may look past the end of what is read

    seats = seats_of(kernel.core, blocks)
    programs = {kind: compile_kernel(kernel, machine, args, blocks, read, kind) for kind in kinds}
    counters = Counters(list(programs.values()))
    depths = [int(machine[f"queues.{pipe}"]) for pipe in QUEUED]
    handover = int(machine["sync.handover"])
    passing = _passing(kernel)

    costs: dict[str, dict[tuple[int, tuple[Any, ...]], InstrCost]] = {kind: {} for kind in kinds}

    def prices(pools: Pools | None, near: Locality) -> dict[str, CostTable]:
        return {kind: CostTable(machine, counters, pools, near.together, passing, costs[kind]) for kind in kinds}

    def run(
        costs: Mapping[str, CostTable], make: Callable[[int], Engine], memories: Mapping[str, Memory],
        of: Sequence[int], watched: int = -1,
    ) -> None:  # fmt: skip
        pools = costs[kinds[0]].pools
        some = [seats[i] for i in of]
        runner = Counting if pools is None else Runner
        runners = [
            runner(programs[s.kind], make(i), costs[s.kind], int(machine["scalar.issue"]), int(machine["sync.flag"]),
                   memories.get(s.kind) if i != watched else None, dict(s.facts))
            for i, s in zip(of, some, strict=True)
        ]  # fmt: skip
        alone = bool(memories) and pools is not None and watched < 0 and _groups_alone(kernel)
        together: Together | None = {} if alone else None
        run_cores(
            kernel.name, some, runners, int(machine["sync.sync_all"]), int(machine["sync.cross_core"]), together
        )  # fmt: skip

    def memories() -> dict[str, Memory]:
        return {kind: Memory() for kind in kinds} if remember else {}

    size = len(counters.index)
    everyone = range(len(seats))
    tallies: list[Engine] = [Tally(depths, size) for _ in seats]
    run(prices(None, Locality()), tallies.__getitem__, memories(), everyone)
    counts = [[int(n) for n in t.totals()] for t in tallies]
    traffic = _traffic(kernel, args, tables, counters, counts, passing)
    near = Locality()
    if any(sum(t.asked) > t.size for (_, writes), t in traffic.items() if not writes):  # something is read again
        copies = {n.spec.name for p in programs.values() for n in p.instructions if n.tensor and n.path}
        count = sum(c[counters.index["count", name]] for c in counts for name in sorted(copies))
        near = _locality(kernel, machine, args, seats, blocks, tables, count)
    traffic = {(n, w): t if w else replace(t, lost=near.lost.get(n, Fraction(0))) for (n, w), t in traffic.items()}
    pools = share_out(machine, traffic)
    engines: list[Engine] = [Engine(depths, 0, handover) for _ in seats]
    timed = prices(pools, near)
    known = memories()
    run(timed, engines.__getitem__, known, everyone)
    intervals: tuple[Interval, ...] = ()
    if spans:
        ends = [e.end() for e in engines]
        shown = ends.index(max(ends))
        recorder = Recorder(depths, handover, spans)
        group = [i for i in everyone if seats[i].group == seats[shown].group] if _groups_alone(kernel) else everyone
        if not any(p.main.syncs for p in programs.values()):
            group = [shown]
        with contextlib.suppress(Enough):
            run(timed, lambda i: recorder if i == shown else Engine(depths, 0, handover), known, group, shown)
        intervals = tuple(Interval(QUEUED[p], a, b, label) for p, a, b, label in recorder.record or ())
    return _result(kernel, machine, list(programs.values()), counters, pools, counts, engines, seats, intervals)


def _passing(kernel: Kernel) -> frozenset[str]:
    """Parameters that the kernel reads past the L2."""
    hints = [s for s in statements(kernel.body) if isinstance(s, Instr) and s.op == "BypassL2"]
    return frozenset(r.tensor for s in hints for r in s.operands if isinstance(r, GmRef))


def _groups_alone(kernel: Kernel) -> bool:
    """Whether the cores of a mixed kernel wait only for those of their group."""
    stmts = list(statements(kernel.body))
    return kernel.core == "mix" and not any(
        isinstance(s, SyncAll) or (isinstance(s, CrossCoreSet) and s.mode == 0) for s in stmts
    )


def _locality(
    kernel: Kernel, machine: Machine, args: Mapping[str, int], seats: Sequence[Seat], blocks: int,
    tables: Mapping[str, Sequence[int]], count: int,
) -> Locality:  # fmt: skip
    """What the L2 makes of the kernel's order of ``count`` instructions; where all data fit nothing is lost."""
    capacity = int(machine["memory.l2_bytes"])
    fits = sum(prod(shape_of(p, args)) * ITEMSIZE[p.dtype] for p in kernel.params) <= capacity
    if fits and len(seats) == 1:
        return Locality()
    return locality(copies_of(kernel, args, seats, blocks, tables, 0 if fits else max(1, count // SAMPLED)), capacity)


def _traffic(
    kernel: Kernel, args: Mapping[str, int], tables: Mapping[str, Any], counters: Counters,
    counts: Sequence[Sequence[int]], passing: frozenset[str],
) -> dict[Key, Traffic]:  # fmt: skip
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
                tuple(c[asked] for c in counts), tuple(c[moved] for c in counts), size,
                cached=written or p.name not in passing,
            )  # fmt: skip
            if sum(traffic.asked):
                out[key] = traffic
    return out


def _result(
    kernel: Kernel, machine: Machine, programs: Sequence[Program], counters: Counters, pools: Pools,
    counts: Sequence[Sequence[int]], engines: list[Engine], seats: Sequence[Seat], intervals: tuple[Interval, ...],
) -> KernelResult:  # fmt: skip
    index = counters.index

    def total(kind: str, key: Any) -> int:
        return sum(c[index[kind, key]] for c in counts)

    cube = {key: total("flops", key) for kind, key in index if kind == "flops"}
    lanes = total("lanes", "")
    wide = max((ITEMSIZE[p.dtype] for p in kernel.params), default=4)
    floor = max(
        sum(f / machine.peak_flops(DTYPES[d]) for d, f in cube.items()),
        lanes / (machine["vector.repeat_bytes"] * machine.cores("aiv") * machine.hz),
        pools.hbm_bytes / machine["memory.hbm_peak"],
        pools.l2_bytes / machine["memory.l2_peak"],
    )
    ends = tuple(e.end() for e in engines)
    cores = Counter(s.kind for s in seats)
    launch = max(machine[f"launch.{kind}_base"] + machine[f"launch.{kind}_per_core"] * n for kind, n in cores.items())
    cycles = max(ends)
    us = launch + machine.us(cycles)
    kinds = {kind: [e for e, s in zip(engines, seats, strict=True) if s.kind == kind] for kind in cores}
    slowest = [max(some, key=lambda e: e.end()) for some in kinds.values()]
    busy = _pipes([e.busy for e in slowest])
    mean = _pipes([[sum(b) // len(some) for b in zip(*(e.busy for e in some), strict=True)] for some in kinds.values()])
    stalls = {pool: max(e.stalls[i] for e in slowest) for i, pool in enumerate(POOLS)}
    moving = frozenset(QUEUED[n.pipe] for p in programs for n in p.instructions if n.tensor and n.path)
    return KernelResult(
        kernel.name, kernel.core, machine.name, len(ends) // len(cores) if kernel.core != "mix" else cores["aic"],
        cycles, us, launch, floor * 1e6, bound_by(cycles, us, launch, busy, stalls, moving), busy, stalls,
        {key: total("path", key) for kind, key in index if kind == "path"}, pools.hbm_bytes, pools.l2_bytes,
        sum(cube.values()) + lanes // wide, {n: total("count", n) for kind, n in index if kind == "count"}, ends,
        kernel.source, intervals, mean,
    )  # fmt: skip


def _pipes(cores: Sequence[Sequence[int]]) -> dict[str, int]:
    """Busy cycles by pipe: the larger of what a cube core and a vector core of a mixed kernel have."""
    return {pipe: max(c[i] for c in cores) for i, pipe in enumerate((*QUEUED, "S"))}
