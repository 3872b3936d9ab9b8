"""``schedule.json``: how the modelled device runs each kernel.

Keys: ``target``, ``model`` (its version), ``sizes``, ``us`` and ``cycles`` in all, and ``kernels`` in launch order:
``kernel``, ``core`` (aic, aiv or mix), ``blocks`` (cores used), ``start_us``, ``us`` (with the launch),
``low_us`` and ``high_us`` (its band), ``launch_us``, ``cycles`` (slowest core), ``busy`` (each pipe's share of the
cycles), ``bound`` (what limits it), ``floor_us`` (max of flops/peak and bytes/bandwidth), ``flops``, ``bytes``
(device memory), ``nodes`` (layer IR nodes that it came from).
"""

from __future__ import annotations

from typing import Any

from moec.report.summary import kernel_entry
from moec.target import Schedule


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    """The schedule as a JSON value."""
    kernels, start = [], 0.0
    for k in schedule.kernels:
        busy = {pipe: round(share, 4) for pipe, share in k.busy.items()}
        more = {"start_us": round(start, 4), "launch_us": round(k.launch_us, 4), "busy": busy, "nodes": list(k.nodes)}
        kernels.append(kernel_entry(k) | more)
        start += k.us
    return {
        "target": schedule.target,
        "model": schedule.model,
        "sizes": dict(schedule.sizes),
        "us": round(schedule.us, 4),
        "cycles": schedule.cycles,
        "kernels": kernels,
    }
