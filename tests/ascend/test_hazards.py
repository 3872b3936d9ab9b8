"""The static happens-before check: every flag and barrier that a kernel has is noticed when it is taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from kernel_sites import without_each

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.hazards import check
from moec.codegen.kernel_ir import Barrier, For, If, Kernel, SetFlag, Stmt, WaitFlag
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.grouped_dw import GroupedDW, grouped_dw_kernel
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.scalar import ceildiv, smin
from moec.codegen.tiling import CubeTile

CAPS = Capacities()
TILE = CubeTile(32, 48, 64, 32, 2)
DEEP = CubeTile(32, 48, 128, 32, 2, 64)
KEPT = CubeTile(32, 48, 208, 32, 2, 64, keep="a", block_n=96)


def chain(slots: int, in_place: bool = False) -> Kernel:
    """Load, two dependent vector instructions, store."""
    k = KernelBuilder("chain", "aiv", CAPS)
    n = k.arg("n")
    x, y = k.gm("x", "f32", (n,), "in"), k.gm("y", "f32", (n,), "out")
    source = k.ub("source", "f32", 64, slots)
    out = source if in_place else k.ub("out", "f32", 64, slots)
    with k.loop("t", k.core, ceildiv(n, 64), k.cores) as t:
        s = k.slot(slots) if slots > 1 else 0
        count = k.let("count", smin(64, n - t * 64))
        k.load(source[s], x[t * 64], count)
        k.v("Muls", out[s], source[s], scalar=2.0, count=count)
        k.v("Exp", out[s], out[s], count=count)
        k.store(y[t * 64], out[s], count)
    for size in (0, 1, 65, 1000):
        k.witness(1, n=size)
    return k.finish(ceildiv(n, 64))


KERNELS: dict[str, Callable[[], Kernel]] = {
    "single": lambda: chain(1),
    "double": lambda: chain(2),
    "triple": lambda: chain(3),
    "in place": lambda: chain(2, in_place=True),
    "matmul": lambda: matmul_kernel("mm", CAPS, TILE, Product(None, 96, 200, 1, "f32", "f32", False)),
    "matmul k by n": lambda: matmul_kernel("mm", CAPS, TILE, Product(None, 96, 200, 1, "f16", "f32", True)),
    "grouped": lambda: grouped_matmul_kernel("gmm", CAPS, TILE, Grouped(4, 96, 200, "bf16", "bf16")),
    "kept": lambda: grouped_matmul_kernel("gmm", CAPS, KEPT, Grouped(4, 96, 200, "bf16", "f32")),
    "gathered": lambda: grouped_matmul_kernel("gmm", CAPS, DEEP, Grouped(4, 96, 200, "bf16", "bf16", gathered_hi=90)),
    "gathered dW": lambda: grouped_dw_kernel("dw", CAPS, TILE, GroupedDW(4, 96, 40, "f32", "f32", gathered_hi=90)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_removing_any_site_is_noticed(name: str) -> None:
    kernel = KERNELS[name]()
    assert check(kernel) == []
    sites = list(without_each(kernel.body))
    assert len(sites) >= 6
    missed = [site for site, body in sites if not check(replace(kernel, body=body))]
    assert missed == []


def statements(block: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for s in block:
        yield s
        if isinstance(s, For):
            yield from statements(s.body)
        elif isinstance(s, If):
            yield from statements(s.then)
            yield from statements(s.orelse)


def test_flags_of_a_double_buffer_by_hand() -> None:
    """Load and store each wait for the slot two iterations back: 2 carried pairs of 2 ids, 2 forward pairs, 1
    barrier."""
    body = list(statements(chain(2).body))
    assert sum(isinstance(s, SetFlag) for s in body) == 2 * (1 + 2) + 2
    assert sum(isinstance(s, WaitFlag) for s in body) == 2 * (1 + 2) + 2
    assert [s for s in body if isinstance(s, Barrier)] == [Barrier("V")]


def test_in_place_needs_no_flag_from_vector_to_load() -> None:
    """The store reads what the vector unit wrote, so waiting for the store covers the vector unit."""
    pairs = {(s.src, s.dst) for s in statements(chain(2, in_place=True).body) if isinstance(s, SetFlag)}
    assert pairs == {("MTE2", "V"), ("V", "MTE3"), ("MTE3", "MTE2")}


def test_a_wrong_event_id_is_noticed() -> None:
    kernel = chain(2)

    def one_id(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in block:
            if isinstance(s, For):
                out.append(replace(s, body=one_id(s.body)))
            elif isinstance(s, SetFlag | WaitFlag) and (s.src, s.dst) == ("MTE2", "V"):
                out.append(replace(s, id=0))
            else:
                out.append(s)
        return tuple(out)

    found = check(replace(kernel, body=one_id(kernel.body)))
    assert any("set again before its wait" in v.what for v in found)
