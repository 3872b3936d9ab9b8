"""``summary.json``: the machine-readable face of a compilation. Keys:

- ``moec``: the compiler's version. ``input``: file name and kind. ``target``: name and title of the machine.
- ``symbols``: by name: ``size`` used for tiles and schedule, ``from`` (``set`` by the user, the
  ``file``, or ``assumed``) and ``bounds``.
- ``warnings``: what looks like a mistake in the input, one text each.
- ``passes``: in order: ``pass`` (with options), ``applied`` (count by rule), ``near_misses`` (``rule``, ``reason``,
  ``at``), ``nodes`` after it; with ``--check``, of a pass that rounds otherwise on purpose, ``errors``: ``max_abs`` and
  ``max_rel`` by output.
- ``ops``: node counts by op, ``before`` (as imported) and ``after`` all passes.
- ``model``: version of the model that timed the kernels.
- ``lowered``: whether kernels were written; ``not_lowered``: why not, one text a problem.
- ``lowering``: with ``--lower aclnn`` or ``auto``: ``mode`` and, for each node that the vendor's library was asked
  about, ``choices``; null otherwise.
- ``kernels``: in launch order, as in ``schedule.json`` without the pipes: ``kernel``, ``core``, ``blocks``,
  ``cycles``, ``us``, ``low_us`` and ``high_us`` (nine of ten measurements are expected between), ``floor_us``,
  ``bound``, ``bytes``, ``flops``.
- ``launches``: number of kernel launches. ``total``: ``cycles``, ``us``, ``low_us``, ``high_us``, ``floor_us``,
  ``bytes``, ``flops`` of all kernels.
- ``host``: where the device waits for the host, before and after; see ``moec/timeline/report.py``.
- ``saved``: what forward keeps for backward in a training graph: ``count``, ``bytes`` at the sizes used, those that
  data decides being of a balanced load, and each value's ``name``, ``type``, ``times`` and ``bytes``; null where it is
  none.
- ``memory``: with ``--budget``: ``budget_bytes``, ``peak_bytes`` of the card and where, ``fixed_bytes`` by use,
  ``parts`` of the peak (weights, gradients, optimizer; activations of forward; passing: what backward makes and
  reads; workspace of the step that runs), ``workspace``: the step that needs most of it, ``saved_bytes`` (activations
  that stay on the card) and ``saved_percent`` (how much fewer than unplanned), ``host_bytes``, ``period_us`` of a
  forward and a backward, ``added_time_percent``, ``bound_gap_percent`` (how far above the solver's bound that is), a
  row for each of ``tensors`` (``fate``: keep, recompute, swap or drop, and ``why``), a ``sweep`` of other budgets,
  and where a rewrite could drop something ``drops``: the plan with it and without, and which was ``chosen``. Shares
  of bytes and time count from what is where nothing is planned or dropped.
- ``checks``: with ``--check``: ``after`` which stage, ``case``, ``against``, ``outputs`` (``output``, ``max_abs``,
  ``max_rel``, ``allowed``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import moec
from moec.autodiff import Saved
from moec.ir.graph import Module
from moec.ir.symbol import Bounds
from moec.passes.base import Step
from moec.passes.result import NearMiss
from moec.target import KernelTime, Schedule
from moec.witness import Check


def op_counts(module: Module) -> dict[str, int]:
    """Nodes by op, over all functions, in alphabetical order."""
    counts: dict[str, int] = {}
    for node in module.nodes():
        counts[node.op] = counts.get(node.op, 0) + 1
    return dict(sorted(counts.items()))


def pass_entry(step: Step, nodes: int) -> dict[str, Any]:
    """The entry of one pass; ``nodes`` is the module's size after it."""
    misses = [{"rule": m.rule, "reason": m.reason, "at": _place(m)} for m in step.result.near_misses]
    entry = {"pass": step.made_by.spec, "applied": step.result.counts(), "near_misses": misses, "nodes": nodes}
    if step.result.errors:
        errors = step.result.errors.items()
        entry["errors"] = {name: {"max_abs": _finite(a), "max_rel": _finite(r)} for name, (a, r) in errors}
    return entry


def _place(miss: NearMiss) -> list[str]:
    return [str(n.origin) for n in miss.nodes]


def kernel_entry(k: KernelTime) -> dict[str, Any]:
    """The figures of one kernel."""
    return {
        "kernel": k.kernel,
        "core": k.core,
        "blocks": k.blocks,
        "cycles": k.cycles,
        "us": _us(k.us),
        "low_us": _us(k.low_us),
        "high_us": _us(k.high_us),
        "floor_us": _us(k.floor_us),
        "bound": k.bound,
        "bytes": k.bytes,
        "flops": k.flops,
    }


def _us(value: float) -> float:
    return round(value, 4)


def totals(schedule: Schedule) -> dict[str, Any]:
    """Sums over the kernels of a schedule."""
    kernels = schedule.kernels
    return {
        "cycles": schedule.cycles,
        "us": _us(schedule.us),
        "low_us": _us(sum(k.low_us for k in kernels)),
        "high_us": _us(sum(k.high_us for k in kernels)),
        "floor_us": _us(sum(k.floor_us for k in kernels)),
        "bytes": sum(k.bytes for k in kernels),
        "flops": sum(k.flops for k in kernels),
    }


def check_entry(check: Check) -> dict[str, Any]:
    """One comparison; an infinite error (shapes differ, NaN) is the text ``inf``, since JSON has no number for it."""
    outputs = [
        {"output": d.output, "max_abs": _finite(d.absolute), "max_rel": _finite(d.relative), "allowed": d.allowed}
        for d in check.differences
    ]
    return {"after": check.stage, "case": check.case, "against": check.expected, "outputs": outputs}


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def saved_entry(saved: Sequence[Saved], sizes: Mapping[str, int]) -> dict[str, Any] | None:
    """The saved activations of a training graph at ``sizes``; None where there are none."""
    if not saved:
        return None
    each = [s.bytes(sizes) for s in saved]
    known = [n for n in each if n is not None]
    return {
        "count": sum(s.times for s in saved),
        "bytes": sum(known) if len(known) == len(each) else None,
        "values": [
            {"name": s.name, "type": str(s.type), "times": s.times, "bytes": n}
            for s, n in zip(saved, each, strict=True)
        ],
    }


def lowering_entry(mode: str, choices: Sequence[Any]) -> dict[str, Any]:
    """How ``--lower`` was followed: for each node that the library was asked about its calls (none: kernels of
    moec's), the oldest toolkit that has them, why, and the microseconds of both where they were compared.
    """
    return {"mode": mode, "choices": [asdict(c) for c in choices]}


def summary(
    source: Mapping[str, str],
    warnings: Sequence[str],
    target: Mapping[str, str],
    sizes: Mapping[str, int],
    given: Mapping[str, str],
    bounds: Mapping[str, Bounds],
    passes: Sequence[Mapping[str, Any]],
    before: Mapping[str, int],
    after: Mapping[str, int],
    schedule: Schedule | None,
    not_lowered: Sequence[str],
    checks: Sequence[Check],
    saved: Mapping[str, Any] | None = None,
    host: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    lowering: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole summary; see the module's docstring for the keys."""
    kernels = schedule.kernels if schedule is not None else ()
    return {
        "moec": moec.__version__,
        "input": dict(source),
        "warnings": list(warnings),
        "target": dict(target),
        "symbols": {
            name: {"size": size, "from": given.get(name, "assumed"), "bounds": list(bounds[name])}
            for name, size in sizes.items()
        },
        "passes": [dict(p) for p in passes],
        "ops": {"before": dict(before), "after": dict(after)},
        "model": schedule.model if schedule is not None else None,
        "lowered": schedule is not None,
        "not_lowered": list(not_lowered),
        "lowering": dict(lowering) if lowering is not None else None,
        "kernels": [kernel_entry(k) for k in kernels],
        "launches": len(kernels),
        "total": totals(schedule) if schedule is not None else None,
        "saved": dict(saved) if saved is not None else None,
        "host": dict(host) if host is not None else None,
        "memory": dict(memory) if memory is not None else None,
        "checks": [check_entry(c) for c in checks],
    }
