"""Host and device of a layer on one timeline: what ``moec host`` prints and what ``moec compile`` says of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moec import sources
from moec.ir.graph import Module
from moec.ops.places import has_host
from moec.passes.base import Context, PassManager
from moec.passes.node_price import TargetPrices
from moec.passes.reorder_launch import has_collectives
from moec.passes.sync_removal_choices import Choice, choices, copy_module, host_time
from moec.passes.sync_removal_reads import reads_of, reasons
from moec.target import Schedule, Target
from moec.timeline.build import PARKING
from moec.timeline.idle import HostTime, steady
from moec.timeline.model import Machine, Task
from moec.timeline.report import side


def time_of(module: Module, context: Context, apart: bool = False) -> HostTime | None:
    """A module on the two timelines; None where it neither runs anything on the host nor exchanges or parks anything:
    then its kernels are launched one after the other, and ``time_of_schedule`` says it from them. ``apart``: its
    forward and backward are of different micro-batches.
    """
    parks = any(n.op in PARKING for n in module.nodes())
    if context.target is None or not (has_host(module) or has_collectives(module) or parks):
        return None
    return host_time(module, context, apart)


def time_of_schedule(schedule: Schedule, target: Target) -> HostTime:
    """A compiled program that launches its kernels one after the other, in a row of its like."""
    launch = target.host("launch")
    tasks = [
        Task(k.kernel, "kernel", k.nodes[0] if k.nodes else "", launch, k.us, "compute", after=(i - 1,) if i else ())
        for i, k in enumerate(schedule.kernels)
    ]
    return steady(tasks, Machine(), {"": (len(tasks) - 1,) if tasks else ()})


def times(
    file: str | Path, given: Mapping[str, int], target: Target, passes: str, capacity_factor: float
) -> dict[str, Any]:
    """A layer before and after ``passes``, its reads, and each way to do without lists of counts, as JSON values."""
    manager = PassManager.parse(passes)
    loaded = sources.read(Path(file))
    module = loaded.module
    context = Context(target, loaded.sizes(given))
    before = host_time(module, context)
    uses = {r.read: r.uses for g in module.functions.values() for r in reasons(module, g)}
    places = {n: n.origin.sources[0] for n in uses if n.origin.sources}
    as_written = {f"{place.file}:{place.line}": uses[n] for n, place in places.items()}
    priced = choices(module, context, capacity_factor) if any(map(reads_of, module.functions.values())) else []
    after_module = copy_module(module)
    applied: dict[str, int] = {}
    for step in manager.run(after_module, context):
        for rule, count in step.result.counts().items():
            applied[rule] = applied.get(rule, 0) + count
    found = {"before": side(before), "after": side(host_time(after_module, context))}
    for read in found["before"]["reads"]:
        read["uses"] = list(as_written.get(read["at"], ()))
    prices = TargetPrices(module, target, context.tune)
    return {
        "target": target.title,
        "sizes": dict(prices.sizes),
        **found,
        "applied": applied,
        "choices": [_choice(c) for c in priced],
        "calls": [{"call": c, "us": us} for c, us in prices.calls().items()],
    }


def _choice(choice: Choice) -> dict[str, Any]:
    entry: dict[str, Any] = {"counts": choice.counts, "exactness": choice.exactness}
    if choice.time is None:
        return entry | {"reason": choice.reason}
    t = choice.time
    return entry | {
        "us": round(t.us, 3),
        "blocking_reads": t.blocking_reads,
        "waited_us": round(sum(r.waited_us for r in t.reads), 3),
        "idle_us": round(t.idle_us("sync"), 3),
        "gap_us": round(t.gap_us, 3),
        "exposed_us": round(t.exposed_us, 3),
        "sent_mib": round(choice.communicated / 2**20, 3),
        "rows": choice.rows,
        "room": choice.room,
    }
