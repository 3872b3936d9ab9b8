"""Products in parts of K, summed in order, on the CPU model: chosen where there are few tiles and a long K, known or
given at run time; parts that have nothing; results that do not depend on the order of cores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ascend_run import Case, built, mask_sites, programs_of
from vector_run import EPS, Layer, numbers

from moec.codegen.capacities import Capacities
from moec.codegen.hazards import check
from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.kernels.vector.parts import UNIT, parts_kernel
from moec.codegen.program import Launch
from moec.codegen.tile import CubeTile

TEXT = """
symbol T in [0, 100000]
func main(%a: bf16[16, 32768], %b: bf16[16, 32768], %c: f32[16*T, 5], %d: f32[16*T, 20],
          %e: f16[1, 9, 16*T], %f: f16[1, 16, 16*T], %t: f32[T]) -> (x: f32[16, 16], y: f32[5, 20], z: f16[1, 9, 16]) {
  %0 = matmul(%a, %b) {transpose_a = false, transpose_b = true, to = !f32} : f32[16, 16]
  %1 = matmul(%c, %d) {transpose_a = true, transpose_b = false, to = none} : f32[5, 20]
  %2 = matmul(%e, %f) {transpose_a = false, transpose_b = true, to = none} : f16[1, 9, 16]
  return %0, %1, %2
}
""".replace(",\n          %e", ", %e")


def test_few_tiles_and_a_long_k(tmp_path: Path) -> None:
    layer = Layer(TEXT, tmp_path)
    steps = [s.kernel for s in layer.program.steps if isinstance(s, Launch)]
    assert len(steps) == 6 and all(name.startswith("sum_of_parts") for name in steps[1::2])
    rng = np.random.default_rng(6)
    fixed = {"a": numbers(rng, (16, 32768), "bf16"), "b": numbers(rng, (16, 32768), "bf16")}
    seen = []
    for tokens, order in ((700, "forward"), (700, "reverse"), (1, "random:3"), (17, "forward"), (0, "forward")):
        k = 16 * tokens
        rng = np.random.default_rng(tokens)
        arrays = fixed | {
            "t": np.zeros(tokens, np.float32),
            "c": numbers(rng, (k, 5), "f32"),
            "d": numbers(rng, (k, 20), "f32"),
        }
        arrays |= {"e": numbers(rng, (1, 9, k), "f16"), "f": numbers(rng, (1, 16, k), "f16")}
        got, exact = layer.run(arrays, MOEC_CPU_ORDER=order, MOEC_POISON="1"), layer.reference(arrays, fp64=True)
        for name, dtype, depth in (("x", "f32", 32768), ("y", "f32", k), ("z", "f16", k)):
            error = np.abs(got[name].astype(np.float64) - exact[name])
            allowed = np.abs(exact[name]) * EPS[dtype] * 0.51 + max(depth, 1) * 2.0**-22
            assert np.all(error <= allowed), (name, tokens, float((error - allowed).max()))
        seen.append(got)
    assert all(np.array_equal(seen[0][n], seen[1][n]) for n in ("x", "y", "z"))
    assert not seen[-1]["y"].any() and not seen[-1]["z"].any()


def kernels() -> list[Kernel]:
    caps = Capacities(aic=2, aiv=2)
    tile = CubeTile(32, 32, 64, 32, 2, splits=3)
    return [
        matmul_kernel("part", caps, tile, Product(None, 40, None, 1, "f16", "f32", True, 4096)),
        parts_kernel("sum", caps, 3, None, None, "bf16", 1 << 20),
    ]


def test_the_static_check_passes() -> None:
    assert [check(k) for k in kernels()] == [[], []]


@pytest.mark.slow
def test_every_site_is_caught(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    m, n, k = 70, 40, 3 * UNIT - 20
    a, b = numbers(rng, (1, m, k), "f16"), numbers(rng, (1, k, n), "f16")
    parts = numbers(rng, (3, 20000), "f32")
    pieces = [
        (a[0, :, i : i + UNIT].astype(np.float64), b[0, i : i + UNIT].astype(np.float64)) for i in range(0, k, UNIT)
    ]
    want = {"part.c": np.stack([x @ y for x, y in pieces]), "sum.y": parts.astype(np.float64).sum(axis=0)}
    project = built(programs_of(kernels(), 2), tmp_path)
    arrays = {"part.a": a, "part.b": b, "sum.x": parts}
    report = mask_sites(project, [Case(arrays, {"M": m, "K": k, "n": 20000}, want)])
    assert not report.missed, f"{report}: {report.missed}"
