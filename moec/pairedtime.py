"""The paired schedule of a layer's forward and backward over expert-parallel ranks, with each form of exchange."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moec import sources
from moec.autodiff.differentiate import differentiate
from moec.diagnostics import Refusal
from moec.ir.graph import Module
from moec.passes.base import Context, PassManager
from moec.passes.hierarchical_a2a import FORMS, HierarchicalAllToAll
from moec.passes.paired import Paired, pair
from moec.passes.sync_removal_choices import copy_module
from moec.target import Target
from moec.timeline.exposed import Exposed, exposures

TIDY = "inline,canonicalise,cse,dce,sum-rows,dce,sync-removal"


def paired_times(
    file: str | Path, given: Mapping[str, int], target: Target, ranks_per_node: int
) -> list[dict[str, Any]]:
    """For a flat exchange and each form in two tiers: one layer forward and one backward, apart and paired, and how
    much of the exchanges between experts is exposed; as JSON values. Refusal for a layer without an ``all_to_all_v``.
    """
    loaded = sources.read(Path(file))
    module = loaded.module
    context = Context(target, loaded.sizes(given))
    groups = [n.attrs["group"].name for n in module.nodes() if n.op == "all_to_all_v"]
    if not groups:
        raise Refusal("a paired schedule is of expert-parallel ranks, and this layer exchanges no rows between any")
    return [_form(copy_module(module), context, form, groups[0], ranks_per_node) for form in ("flat", *FORMS)]


def _form(module: Module, context: Context, form: str, group: str, ranks_per_node: int) -> dict[str, Any]:
    PassManager.parse("cse").run(module, context)
    if form != "flat":
        result = HierarchicalAllToAll(form=form, ranks_per_node=ranks_per_node, force=True).run(module, context)
        if not any("between nodes" in a.rule for a in result.applied):
            return {"form": form, "reason": result.near_misses[0].reason}
    PassManager.parse("sync-removal").run(module, context)
    differentiate(module)
    PassManager.parse(TIDY).run(module, context)
    return {"form": form, **_figures(pair(module, context), group)}


def _figures(p: Paired, group: str) -> dict[str, Any]:
    """Microseconds; exposed also as a share of a paired step."""
    exposed = p.paired.exposed_in(group)
    return {
        "forward_us": round(p.forward.us, 1),
        "backward_us": round(p.backward.us, 1),
        "apart_us": round(p.apart_us, 1),
        "paired_us": round(p.paired.us, 1),
        "exchange_us": round(p.forward.communication_in(group) + p.backward.communication_in(group), 1),
        "exposed_apart_us": round(p.exposed_apart(group), 1),
        "exposed_apart_percent": round(100 * p.exposed_apart(group) / p.apart_us, 2) if p.apart_us else 0.0,
        "exposed_us": round(exposed, 1),
        "exposed_percent": round(100 * exposed / p.paired.us, 2) if p.paired.us else 0.0,
        "exposed": [_exposed(e) for e in exposures(p.paired, group)],
        "all_exposed_us": round(p.paired.exposed_us, 1),
        "free_time_percent": round(p.paired.free_time_percent, 3),
        "blocking_reads": p.paired.blocking_reads,
        "kernels_us": round(sum(p.kernels.values()), 1),
        "kernels": {op: round(us, 1) for op, us in sorted(p.kernels.items(), key=lambda item: -item[1])},
    }


def _exposed(e: Exposed) -> dict[str, Any]:
    held = [{"side": lane, "kernel": kernel, "waits_for": exchange} for lane, kernel, exchange in e.held]
    times = {"whole_us": round(e.whole_us, 1), "us": round(e.us, 1)}
    return {"exchange": e.exchange, "side": e.lane, "at": e.where, **times, "held": held}
