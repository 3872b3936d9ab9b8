"""A target for tests of timelines: times that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from moec.ir.types import TensorType
from moec.target import KernelTime


class TimingDouble:
    """Kernels and exchanges take 1 us an element of their first operand (1 us where there is none), times ``factor`` of
    the op; host calls what they are given.
    """

    name = title = "double"

    def __init__(self, factor: Mapping[str, float] | None = None, **calls: float):
        self.calls = {"op": 1.0, "launch": 1.0, "collective": 1.0, "read": 3.0, "copy": 1.0, "sync": 1.0, "event": 0.0}
        self.calls |= calls
        self.factor = factor or {}

    def estimate(
        self, op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> KernelTime:
        first = operands[0] if operands else None
        us = 1.0 if first is None else float(np.prod([int(str(d)) for d in first.dims]))
        return KernelTime(op, "aiv", 1, 1, us * self.factor.get(op, 1.0), 0.0, 0.0, "V", 0, 0)

    def host(self, call: str) -> float:
        return self.calls[call]
