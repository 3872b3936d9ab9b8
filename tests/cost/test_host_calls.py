"""Host call costs: each between what its sources say, and in the order that they have."""

from __future__ import annotations

from moec.targets.ascend.opmodel.host import host_calls, host_us

LEAST_AND_MEAN = {
    "launch": (2.04, 5.82),  # runtime KernelLaunchWithHandle
    "copy": (2.21, 5.11),  # runtime MemcpyAsync
    "read": (19.3, 46.8),  # runtime MemCopySync
    "event": (3.78, 11.36),  # runtime EventRecord
    "wait": (3.44, 8.56),  # runtime StreamWaitEvent
    "alloc": (5.81, 21.68),  # runtime DevMalloc
    "free": (3.85, 9.71),  # runtime DevFree
}
"""Microseconds with a profiler attached, which inflates: the least of a call, the largest mean over ranks."""


def test_calls_cost_less_than_under_a_profiler() -> None:
    for call, (least, mean) in LEAST_AND_MEAN.items():
        assert least <= host_us(call) <= mean, call


def test_what_was_measured_without_a_profiler() -> None:
    """triton-ascend issue 1675: an eager add is enqueued in 12.142 us, an optimised launcher takes 8.599."""
    assert abs(host_us("op") - 12.142) < 0.1
    assert host_calls()["op"].low_us == 8.6


def test_a_read_costs_many_launches() -> None:
    assert host_us("launch") < host_us("op") < host_us("read")
    assert host_us("launch") < host_us("aclnn") <= host_us("op")
    for name, call in host_calls().items():
        assert 0 < call.low_us <= call.us <= call.high_us, name
        assert call.source and call.meaning and call.confidence in ("measured", "inferred"), name
