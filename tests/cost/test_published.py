"""Against published measurements of whole kernels (CANN asc-devkit examples, 910B1, 24 cube or 48 vector cores)."""

from __future__ import annotations

from moec.codegen.capacities import Capacities
from moec.codegen.kernels.cube import Product, matmul_kernel
from moec.codegen.tiling import CubeTile
from moec.ir.types import F16, TensorType
from moec.targets.ascend import load_target
from moec.targets.ascend.machine import load
from moec.targets.ascend.model.simulate import simulate

B1 = load("ascend910b1")


def within(value: float, low: float, high: float, slack: float) -> bool:
    return low * (1 - slack) <= value <= high * (1 + slack)


def test_matmul_8192_with_large_packets() -> None:
    """fp16, base tile 128x256x64, K in L1 steps of 256. Measured 4012 to 4157 us; cube 3116, MTE2 3436 to 3779."""
    product = Product(8192, 8192, 8192, 1, "f16", "f16")
    result = simulate(matmul_kernel("mm", Capacities(), CubeTile(128, 256, 256, 64, 1), product), B1, {})
    assert within(result.us, 4012, 4157, 0.15)
    assert within(B1.us(result.busy["M"]), 3116, 3116, 0.05)
    assert within(B1.us(result.busy["MTE2"]), 3436, 3779, 0.05)
    assert within(B1.us(result.busy["MTE1"]), 2333, 2750, 0.20)


def test_matmul_8192_with_small_packets() -> None:
    """The same, K in L1 steps of 64. Measured: 12541 us; MTE2 10178."""
    product = Product(8192, 8192, 8192, 1, "f16", "f16")
    result = simulate(matmul_kernel("mm", Capacities(), CubeTile(128, 256, 64, 64, 1), product), B1, {})
    assert result.bound == "MTE2"
    assert within(result.us, 12541, 12541, 0.20)
    assert within(B1.us(result.busy["MTE2"]), 10178, 10178, 0.05)


def test_add_8192_squared() -> None:
    """fp16, double buffered, large copies, through L2. Measured: 264 to 268 us."""
    square = TensorType(F16, (8192, 8192))
    assert within(load_target("ascend910b1").estimate("add", [square, square], {}, {}).us, 264, 268, 0.10)
