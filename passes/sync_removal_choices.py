"""What each way to do without a list of counts on the host costs: the whole layer on the two timelines, in a row of its
like, with the launches reordered for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.autodiff.functions import copied
from moec.ir.graph import Module
from moec.ir.symbol import evaluate
from moec.passes.base import Context
from moec.passes.node_price import TargetPrices
from moec.passes.reorder_launch import ReorderLaunch
from moec.passes.sync_removal_reads import reads_of
from moec.passes.sync_removal_steps import remove_reads
from moec.timeline.build import tasks_of
from moec.timeline.idle import HostTime, steady

EXACTNESS = {
    "keep": "exact",
    "async": "exact",
    "all-gather": "reassociated; equally many tokens on every rank",
    "capacity": "exact, or refused where a block overflows",
}


@dataclass(frozen=True)
class Choice:
    """One way, priced. ``time`` is None where the layer does not allow it; ``reason`` says why. ``room``: rows that
    buffers of arriving rows must have room for, ``rows`` those that arrive when the load is balanced.
    """

    counts: str
    exactness: str
    time: HostTime | None = None
    communicated: int = 0
    rows: int = 0
    room: int = 0
    reason: str = ""

    def text(self) -> str:
        """One line."""
        if self.time is None:
            return f"counts={self.counts}: not possible: {self.reason}"
        t = self.time
        waited = sum(r.waited_us for r in t.reads)
        reads = (
            f"{t.blocking_reads} blocking reads (host waits {waited:.1f} us, device idles {t.idle_us('sync'):.1f} us)"
        )
        exposed = f"{t.exposed_us:.1f} us of communication exposed"
        rows = f"room for {self.room} rows of {self.rows}"
        return f"counts={self.counts}: {t.us:.1f} us, {reads}, {exposed}, {rows}; {self.exactness}"


def copy_module(module: Module) -> Module:
    """A copy that shares tensors."""
    made = Module()
    for name, graph in module.functions.items():
        made.functions[name] = copied(graph, name)
    made.symbols, made.shards = dict(module.symbols), dict(module.shards)
    return made


def host_time(module: Module, context: Context, apart: bool = False) -> HostTime:
    """A module on the two timelines, in a row of its like; ``apart``: see ``tasks_of``."""
    prices = TargetPrices(module, context.target, context.tune)
    program = tasks_of(module, prices, apart)
    return steady(program.tasks, prices.machine(), program.outputs)


def choices(module: Module, context: Context, capacity_factor: float) -> list[Choice]:
    """Every way, priced, in a fixed order; ``capacity`` with the given factor, or 2 where none is given."""
    return [_choice(module, context, counts, capacity_factor) for counts in EXACTNESS]


def _choice(module: Module, context: Context, counts: str, factor: float) -> Choice:
    exactness = EXACTNESS[counts]
    if counts == "capacity" and factor < 1:
        factor = 2.0
    if counts == "capacity":
        exactness = f"{exactness}; blocks of {factor:g} times the average"
    copy = copy_module(module)
    result = remove_reads(copy, counts, factor)
    if counts in ("all-gather", "capacity") and any(reads_of(g) for g in copy.functions.values()):
        return Choice(
            counts, exactness, reason=result.near_misses[0].reason if result.near_misses else "reads are left"
        )
    ReorderLaunch().run(copy, context)
    prices = TargetPrices(copy, context.target, context.tune)
    program = tasks_of(copy, prices)
    time = steady(program.tasks, prices.machine(), program.outputs)
    rows, room = _room(copy, prices.sizes)
    sent = sum(t.bytes for t in program.tasks if t.kind == "collective")
    return Choice(counts, exactness, time, sent, rows, room)


def _room(module: Module, sizes: dict[str, int]) -> tuple[int, int]:
    """Rows that arrive in the largest exchange of a balanced load, and rows that there must be room for."""
    rows = room = 0
    for node in module.nodes():
        if node.op in ("bind_size", "device_size"):
            arrive = sizes[str(node.attrs["value"])]
            at_most = evaluate(node.attrs["at_most"], sizes) if node.op == "device_size" else arrive
            if arrive > rows:
                rows, room = arrive, at_most
    return rows, room


def cheapest(found: Sequence[Choice]) -> str:
    """The choice that takes least time of those that are possible and refuse nothing."""
    able = [c for c in found if c.time is not None and c.counts != "capacity"]
    return min(able, key=lambda c: c.time.us if c.time is not None else 0.0).counts
