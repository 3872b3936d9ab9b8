"""The static check across cores: SyncAll, atomics, and neighbouring tiles that do not touch."""

from __future__ import annotations

from dataclasses import replace

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Kernel, SyncAll
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.races import check_races
from moec.codegen.tiling import CubeTile

CAPS = Capacities()


def exchange(atomic: bool = False, shared: bool = False) -> Kernel:
    """Each core writes 8 numbers to its own place (or all to one), then reads those of the core after it."""
    k = KernelBuilder("exchange", "aiv", CAPS)
    n = k.arg("n")
    work = k.gm("work", "f32", (n,), "inout")
    buf = k.ub("buf", "f32", 8)[0]
    k.fill(buf, 1.0, 8)
    if atomic:
        k.op("SetAtomicAdd", work[0])
    k.store(work[0 if shared else k.core * 8], buf, 8)
    if atomic:
        k.op("SetAtomicNone")
    k.sync_all()
    with k.if_(k.core < k.cores - 1):
        k.load(buf, work[(k.core + 1) * 8], 8)
    k.witness(1, n=8)
    k.witness(3, n=24)
    return k.finish(3)


def test_sync_all_orders_the_cores() -> None:
    kernel = exchange()
    assert check_races(kernel) == []
    bare = replace(kernel, body=tuple(s for s in kernel.body if not isinstance(s, SyncAll)))
    (found,) = check_races(bare)
    assert "cores 0 and 1 use the same bytes of work" in found.what or "cores 1 and 0" in found.what


def test_two_writers_of_one_place() -> None:
    assert check_races(exchange(shared=True)) != []
    assert check_races(exchange(shared=True, atomic=True)) == []


def test_tiles_beside_one_another_do_not_collide() -> None:
    """Tiles of one row band interleave in memory: row by row, not as one range."""
    tile = CubeTile(32, 32, 64, 32, 2)
    assert check_races(matmul_kernel("mm", CAPS, tile, Product(None, 96, 64, 1, "f32", "f32"))) == []
