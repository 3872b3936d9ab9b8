"""The text form of kernels is exact, and its errors name the line."""

from __future__ import annotations

import pytest
from ascend_run import TEMPLATES
from golden_plugin import Golden

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.emit import emit_kernel
from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.project import environment
from moec.codegen.scalar import ceildiv, choose, eq, smin
from moec.codegen.text import print_kernel
from moec.codegen.text_parse import parse_kernel
from moec.codegen.tiling import CubeTile
from moec.diagnostics import Refusal

CAPS = Capacities()
TILE = CubeTile(32, 48, 64, 32, 2)


def scale_kernel() -> Kernel:
    """x times two, plus a scalar read from device memory."""
    k = KernelBuilder("scale", "aiv", CAPS, ("mul (layer.moe:3)",))
    n = k.arg("n", 0, 1 << 20)
    x, y = k.gm("x", "f32", (n,), "in"), k.gm("y", "f32", (n,), "out")
    bias = k.gm("bias", "f32", (1,), "in")
    buf = k.ub("buf", "f32", 512, slots=2)
    b = k.read("b", bias[0])
    with k.loop("t", k.core, ceildiv(n, 512), k.cores) as t:
        part = buf[k.slot(2)]
        count = k.let("count", smin(512, n - t * 512))
        k.load(part, x[t * 512], count)
        k.v("Muls", part, part, scalar=2.0, count=count)
        k.v("Adds", part, part, scalar=choose(eq(count, 1), b, b * 1.0), count=count)
        k.store(y[t * 512], part, count)
    for size in (0, 1, 513, 5000):
        k.witness(1, n=size)
    return k.finish(ceildiv(n, 512))


KERNELS = {
    "scale": scale_kernel,
    "matmul": lambda: matmul_kernel("mm", CAPS, TILE, Product(None, 96, 100, 1, "f32", "f32", True)),
    "batched": lambda: matmul_kernel("mm", CAPS, TILE, Product(None, None, None, None, "f16", "f32", False, 4096)),
    "grouped": lambda: grouped_matmul_kernel("gmm", CAPS, TILE, Grouped(4, 96, 100, "bf16", "bf16")),
}


@pytest.mark.parametrize("name", KERNELS)
def test_round_trip(name: str) -> None:
    kernel = KERNELS[name]()
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert again == kernel
    assert print_kernel(again) == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Muls(", "Mulz("), "unknown instruction 'Mulz'"),
        (("dst=buf{ping}", "dst=bux{ping}"), "unknown buffer 'bux'"),
        (("min(512, n", "min(512, q"), "unknown name 'q'"),
        (("src=@x", "src=@z"), "unknown tensor 'z'"),
    ],
)
def test_errors_name_the_line(change: tuple[str, str], message: str) -> None:
    text = print_kernel(scale_kernel())
    broken = text.replace(*change, 1)
    line = next(i for i, (a, b) in enumerate(zip(text.splitlines(), broken.splitlines(), strict=True), 1) if a != b)
    with pytest.raises(Refusal, match=message) as caught:
        parse_kernel(broken, "k.txt")
    assert caught.value.problems[0].where.line == line


def test_source_of_a_kernel(golden: Golden) -> None:
    golden(emit_kernel(scale_kernel(), environment(TEMPLATES)).text)
