"""The static check of operands and parameters finds what the hardware would not take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.limits import check_limits
from moec.codegen.scalar import smin
from moec.codegen.tiling import cube_tile
from moec.diagnostics import Refusal

CAPS = Capacities()


def copy(
    change: Callable[[KernelBuilder], None] | None = None, count: int = 64, offset: int = 0, rows: int = 1
) -> Kernel:
    """Loads, doubles and stores ``count`` of n elements, from element ``offset`` of a 64-element buffer."""
    k = KernelBuilder("copy", "aiv", CAPS)
    n = k.arg("n")
    x, y = k.gm("x", "f32", (n,), "in"), k.gm("y", "f32", (n,), "out")
    buf = k.ub("buf", "f32", 64)[0][offset]
    k.load(buf, x[0], smin(n, count), rows=rows)
    k.v("Muls", buf, buf, scalar=2.0, count=smin(n, count))
    k.store(y[0], buf, smin(n, count))
    k.witness(n=64)
    k.witness(n=1000)
    return k.draft()


def test_a_sound_kernel_has_none() -> None:
    assert check_limits(copy()) == []


@pytest.mark.parametrize(
    ("kernel", "what"),
    [
        (copy(count=65), "UB accessed outside its bounds: bytes 0 to 288 of 256"),
        (copy(count=32, offset=3), "UB operand misaligned: byte 12, must be a multiple of 32"),
        (copy(count=8, rows=4096), "blockCount out of range: 4096, at most 4095"),
        (copy(count=600, rows=2), "GM:x accessed outside its bounds"),
    ],
)
def test_each_limit(kernel: Kernel, what: str) -> None:
    assert any(what in v.what for v in check_limits(kernel))


def test_what_an_instruction_asks_of_addresses() -> None:
    """Sort32's records stand at multiples of 256 bytes, what it sorts at multiples of 128."""

    def sorted_at(records: int, scores: int) -> list[str]:
        k = KernelBuilder("sort", "aiv", CAPS)
        k.ub("before", "u8", 32)
        places = [
            k.ub("records", "f32", 64, align=records),
            k.ub("scores", "f32", 32, align=scores),
            k.ub("index", "u32", 32, align=128),
        ]
        k.v("Sort32", *(b[0] for b in places), repeatTime=1)
        k.witness()
        return [v.what for v in check_limits(k.draft())]

    assert sorted_at(256, 128) == []
    assert sorted_at(128, 128) == ["UB operand misaligned: byte 128, must be a multiple of 256"]
    assert sorted_at(96, 64) == ["UB operand misaligned: byte 96, must be a multiple of 256"]
    assert sorted_at(256, 0) == sorted_at(256, 64) == []  # the records end on 512


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (7, 126), (4096, 7680), (255, 70000)])
def test_tiles_fit_and_keep_every_limit(dtype: str, n: int, k: int) -> None:
    for m in (1, 5000):
        tile = cube_tile(m, n, k, dtype, CAPS)
        kernel = matmul_kernel("mm", CAPS, tile, Product(None, n, k, 1, dtype, "f32", k % 2 == 0, 1 << 20))
        assert check_limits(kernel) == []
    grouped = grouped_matmul_kernel("gmm", CAPS, tile, Grouped(4, n, k, dtype, dtype, 1 << 20))
    assert check_limits(grouped) == []


def test_a_buffer_that_does_not_fit_is_refused_in_kib() -> None:
    k = KernelBuilder("big", "aiv", CAPS, ("silu (layer.moe:7)",))
    k.ub("first", "f32", 1024)
    with pytest.raises(Refusal) as caught:
        k.ub("tile", "f32", 48000)
    text = str(caught.value)
    assert "needs 191.5 KiB of UB, 183.8 KiB are usable" in text
    assert "first 1 x 4.0, tile 1 x 187.5" in text
    assert "silu (layer.moe:7)" in text


def test_no_tile_fits() -> None:
    with pytest.raises(Refusal, match="no tile of a f32 product fits"):
        cube_tile(16, 16, 16, "f32", Capacities(l0a=1024))


def test_the_tile_is_the_best_known_one_for_large_products() -> None:
    """128 x 256 with 64 of K in L0 is the best base tile for f16 on this architecture (CANN asc-devkit docs)."""
    tile = cube_tile(8192, 8192, 8192, "f16", CAPS)
    assert (tile.m, tile.n, tile.k1, tile.k0, tile.c_slots) in ((128, 256, 256, 64, 1), (256, 128, 256, 64, 1))
