"""A target whose prices are round numbers, and that makes no kernels: quick, and easy to reckon with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moec.diagnostics import NoKernel
from moec.ir.graph import Module
from moec.ir.types import TensorType
from moec.target import KernelTime
from moec.targets.ascend.target import AscendTarget


class Flat(AscendTarget):
    """Products of experts and exchanges of rows take 100 us, all else 1 us; no kernel needs workspace."""

    def estimate(
        self, op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> KernelTime:
        rows = operands[0] if operands else None
        wide = rows is not None and rows.rank == 2 and rows.dims[1] != 1
        us = 100.0 if op in ("grouped_matmul", "all_to_all_v") and wide else 1.0
        return KernelTime(op, "aiv", 1, 0, us, 0.0, us, "V", 0, 0)

    def workspace(
        self, op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> int:
        return 0

    def lower(self, module: Module, tune: Mapping[str, int], library: str = "kernels") -> Any:
        raise NoKernel("this target has no kernels")
