"""A schedule by hand, for tests of reports: two kernels with known times."""

from __future__ import annotations

from moec.target import KernelTime, Schedule, Span


def small_schedule() -> Schedule:
    """A matmul of 1,000 cycles and a vector kernel of 500, at 1,000 cycles a microsecond, each launched in 2 us."""
    first = KernelTime(
        "router_matmul",
        "aic",
        24,
        1000,
        3.0,
        2.0,
        0.5,
        "MTE2",
        4096,
        8192,
        {"MTE2": 0.9, "M": 0.25},
        ("m.onnx:3 MatMul",),
        (Span("MTE2", 0, 900, "DataCopy"), Span("M", 750, 1000, "Mmad")),
    )
    second = KernelTime(
        "gating", "aiv", 48, 500, 2.5, 2.0, 0.1, "launch", 100, 400, {"V": 1.0}, (), (Span("V", 0, 500, "Sort32"),)
    )
    return Schedule("ascend910b1", {"T": 4}, (first, second))
