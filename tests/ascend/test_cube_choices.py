"""The choices of a product's tile program on the CPU model against numpy: how much of K is in L1, the order of blocks,
where cores start in K, unit flags."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from ascend_run import Case, built, mask_sites, programs_of

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Kernel, SetFlag, WaitFlag, statements
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.tiling import CubeTile

pytestmark = pytest.mark.slow  # a build for every site or choice

CAPS = Capacities(aic=3, aiv=3)
BASE = CubeTile(32, 32, 64, 32, 1)
CHOICES = {
    "single": replace(BASE, l1_slots=1),
    "deep_a": replace(BASE, k1=128, k1b=64),
    "deep_b": replace(BASE, k1=64, k1b=128),
    "unit": replace(BASE, unit=True),
    "unit_two": replace(BASE, unit=True, c_slots=2),
    "diagonal": replace(BASE, diagonal=True),
    "stagger": replace(BASE, stagger=True),
    "panel": replace(BASE, panel=2, diagonal=True),
    "blocks": replace(BASE, block_m=64, block_n=96),
    "odd_blocks": replace(BASE, block_m=70, block_n=45, panel=2),
    "keep_a": replace(BASE, keep="a", k1=304, k1b=64, block_n=96),
    "keep_b": replace(BASE, keep="b", k1b=304, block_m=96, panel=2),
    "keep_both_deep": replace(BASE, keep="b", k1=304, block_m=64, unit=True),
    "one_band": replace(BASE, m=16, keep="a", k1=304, k1b=64, block_n=64, c_slots=2),
    "all": CubeTile(32, 32, 128, 32, 1, 64, 2, 64, 64, 2, True, True, True),
}


def kernel(name: str, tile: CubeTile, dtype: str, by_k: bool) -> Kernel:
    return matmul_kernel(name, CAPS, tile, Product(None, 150, 300, 1, dtype, "f32", by_k))


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("dtype", "by_k"),
    [("f16", False), pytest.param("f16", True, marks=SLOW), pytest.param("f32", False, marks=SLOW), ("f32", True)],
)
def test_every_choice_computes_the_product(dtype: str, by_k: bool, tmp_path: Path) -> None:
    kernels = [kernel(name, tile, dtype, by_k) for name, tile in CHOICES.items()]
    project = built(programs_of(kernels, 3), tmp_path)
    rng = np.random.default_rng(7)
    carrier = np.float32 if dtype == "f32" else np.float16
    for m in (0, 1, 97, 200):
        a = rng.standard_normal((1, m, 300)).astype(carrier)
        b = rng.standard_normal((1, 300, 150) if by_k else (1, 150, 300)).astype(carrier)
        want = a.astype(np.float64) @ (b if by_k else np.swapaxes(b, 1, 2)).astype(np.float64)
        arrays = {f"{name}.{operand}": x for name in CHOICES for operand, x in (("a", a), ("b", b))}
        got = project.outputs(arrays, {"M": m})
        for name in CHOICES:
            np.testing.assert_allclose(got[f"{name}.c"], want, rtol=1e-5, atol=2e-4, err_msg=f"{name}, {m} rows")


def test_every_site_is_needed(tmp_path: Path) -> None:
    names = ("deep_a", "all", "keep_a", "keep_b")
    project = built(programs_of([kernel(name, CHOICES[name], "f16", False) for name in names], 3), tmp_path)
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((1, 200, 300)).astype(np.float16), rng.standard_normal((1, 150, 300)).astype(np.float16)
    want = a.astype(np.float64) @ np.swapaxes(b, 1, 2).astype(np.float64)
    arrays = {f"{name}.{operand}": x for name in names for operand, x in (("a", a), ("b", b))}
    report = mask_sites(project, [Case(arrays, {"M": 200}, {f"{name}.c": want for name in names})])
    assert not report.missed, f"{report}: {report.missed}"


def test_unit_flags_need_no_others_between_cube_and_fixpipe() -> None:
    def pairs(tile: CubeTile) -> set[tuple[str, str]]:
        body = kernel("k", tile, "f16", False).body
        return {(s.src, s.dst) for s in statements(body) if isinstance(s, SetFlag | WaitFlag)}

    assert {("M", "FIX"), ("FIX", "M")} <= pairs(BASE)
    assert not {("M", "FIX"), ("FIX", "M")} & pairs(CHOICES["unit"])


def test_bf16_by_pieces(tmp_path: Path) -> None:
    """16-bit output through the unit flags' Fixpipe."""
    product = Product(None, 150, 300, 1, "bf16", "bf16")
    project = built(programs_of([matmul_kernel("mm", CAPS, CHOICES["all"], product)], 3), tmp_path)
    rng = np.random.default_rng(9)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((1, 97, 300), (1, 150, 300)))
    got = project.outputs({"mm.a": a, "mm.b": b}, {"M": 97})["mm.c"]
    want = a.astype(np.float64) @ np.swapaxes(b, 1, 2).astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=8e-3, atol=2e-4)
