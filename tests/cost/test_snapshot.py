"""Estimates as they stand. A change here needs a new ``MODEL_VERSION`` and its reason in the commit."""

from __future__ import annotations

from collections.abc import Callable

from cost_kernels import scale_kernel

from moec.codegen.capacities import Capacities
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.tiling import CubeTile
from moec.targets.ascend.machine import load, machines
from moec.targets.ascend.model.result import MODEL_VERSION, KernelResult
from moec.targets.ascend.model.simulate import simulate

CAPS = Capacities()


def line(r: KernelResult) -> str:
    busy = " ".join(f"{pipe} {cycles}" for pipe, cycles in r.busy.items() if cycles)
    return f"{r.machine:16} {r.cycles:>9} cycles {r.us:>9.2f} us floor {r.floor_us:>9.2f} by {r.bound:6} {busy}"


def test_kernels(golden: Callable[[str], None]) -> None:
    cases: list[tuple[str, object, dict[str, int]]] = [
        ("y = exp(x), 64 MiB", scale_kernel(), {"n": 4096}),
        ("y = exp(x), one row", scale_kernel(), {"n": 1}),
    ]
    product = Product(None, 2048, 1024, 1, "bf16", "bf16")
    cases.append(
        (
            "matmul bf16 1000 x 2048 x 1024",
            matmul_kernel("m", CAPS, CubeTile(128, 256, 256, 64, 1), product),
            {"M": 1000},
        )
    )
    grouped = Grouped(16, 1024, 512, "f32", "f32")
    tile = CubeTile(64, 128, 128, 32, 2)
    cases.append(
        ("grouped matmul f32, 16 experts, 333 rows", grouped_matmul_kernel("g", CAPS, tile, grouped), {"S": 333})
    )
    lines = [f"model {MODEL_VERSION}"]
    for title, kernel, args in cases:
        lines += ["", title]
        lines += [line(simulate(kernel, load(name), args)) for name in machines()]  # type: ignore[arg-type]
    golden("\n".join(lines) + "\n")
