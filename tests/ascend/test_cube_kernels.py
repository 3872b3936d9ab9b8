"""The cube kernels on the CPU model against numpy: dtypes, odd sizes, one row, empty experts, no row at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from ascend_run import Case, built, built_kernel, mask_sites, programs_of

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.matmul import Product, matmul_kernel
from moec.codegen.tiling import CubeTile, cube_tile

CAPS = Capacities(aic=2, aiv=2)
CARRIER = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
EPS = {"f32": 2e-6, "f16": 1e-3, "bf16": 8e-3}


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32).astype(CARRIER[dtype])


def product(a: np.ndarray, b: np.ndarray, by_k: bool) -> np.ndarray:
    """a by b in f64."""
    wide = a.astype(np.float64), b.astype(np.float64)
    return wide[0] @ (wide[1] if by_k else np.swapaxes(wide[1], -1, -2))


def close(got: np.ndarray, want: np.ndarray, out: str, depth: int) -> None:
    """Within rounding of the output dtype and of ``depth`` f32 sums."""
    scale = np.sqrt(depth) * 4
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=EPS[out], atol=EPS["f32"] * scale + 1e-30)


def matmul(name: str, n: int, k: int, dtype: str, out: str, by_k: bool = False, tile: CubeTile | None = None) -> Kernel:
    tile = tile or cube_tile(64, n, k, dtype, CAPS)
    return matmul_kernel(name, CAPS, tile, Product(None, n, k, 1, dtype, out, by_k))


def run_products(folder: Path, variants: dict[str, tuple[int, int, str, str, bool]], rows: tuple[int, ...]) -> None:
    """Every variant (n, k, dtype, out, b by k) at every number of rows, in one program, against numpy."""
    rng = np.random.default_rng(0)
    project = built(programs_of([matmul(name, *v) for name, v in variants.items()], 2), folder)
    for m in rows:
        arrays, want = {}, {}
        for name, (n, k, dtype, _, by_k) in variants.items():
            a, b = numbers(rng, (1, m, k), dtype), numbers(rng, (1, k, n) if by_k else (1, n, k), dtype)
            arrays |= {f"{name}.a": a, f"{name}.b": b}
            want[name] = product(a, b, by_k)
        got = project.outputs(arrays, {"M": m})
        for name, (_, k, _, out, _) in variants.items():
            close(got[f"{name}.c"], want[name], out, k)


def test_matmul(tmp_path: Path) -> None:
    dtypes = (("f32", "f32"), ("f16", "f16"), ("bf16", "f32"), ("bf16", "bf16"))
    variants = {f"{d}_{o}_{by_k}": (126, 150, d, o, by_k) for d, o in dtypes for by_k in (False, True)}
    run_products(tmp_path, variants, (0, 1, 2, 5, 127, 200))


@pytest.mark.slow
def test_matmul_small_widths(tmp_path: Path) -> None:
    widths = ((1, 1), (5, 7), (7, 126), (17, 33))
    variants = {
        f"w{n}_{k}_{d}_{by_k}": (n, k, d, "f32", by_k)
        for n, k in widths
        for d in ("f32", "f16")
        for by_k in (False, True)
    }
    run_products(tmp_path, variants, (1, 3, 18))


@pytest.mark.slow
def test_matmul_batched_with_every_size_at_run_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    tile = CubeTile(32, 32, 64, 32, 2)
    kernel = matmul_kernel("mm", CAPS, tile, Product(None, None, None, None, "f32", "f32", False, 4096))
    project = built_kernel(kernel, tmp_path)
    for batch, m, n, k in ((1, 1, 1, 1), (3, 33, 35, 70), (2, 7, 64, 200), (0, 4, 4, 4)):
        a, b = numbers(rng, (batch, m, k), "f32"), numbers(rng, (batch, n, k), "f32")
        got = project.outputs({"a": a, "b": b}, {"B": batch, "M": m, "N": n, "K": k})["c"]
        close(got, product(a, b, False), "f32", k)


def grouped_reference(rows: np.ndarray, w: np.ndarray, counts: np.ndarray) -> np.ndarray:
    out = np.zeros((rows.shape[0], w.shape[1]))
    at = 0
    for e, count in enumerate(counts):
        out[at : at + count] = rows[at : at + count].astype(np.float64) @ w[e].astype(np.float64).T
        at += count
    return out


def test_grouped_matmul(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    experts, n, k = 5, 75, 90
    tile = CubeTile(32, 48, 64, 32, 2)
    dtypes = {"g32": ("f32", "f32"), "g16": ("f16", "f16"), "gb16": ("bf16", "bf16")}
    kept = {
        "ga": replace(tile, keep="a", k1=96, k1b=32, block_n=96, diagonal=True, stagger=True),
        "gb": replace(tile, keep="b", k1b=96, k1=32, block_m=64, bypass="b", panel=1),
        "gs": replace(tile, m=16, stagger=True, diagonal=True, panel=2),
    }
    dtypes |= dict.fromkeys(kept, ("bf16", "f32"))
    kernels = [grouped_matmul_kernel(x, CAPS, kept.get(x, tile), Grouped(experts, n, k, *d)) for x, d in dtypes.items()]
    project = built(programs_of(kernels, 2), tmp_path)
    for counts in ([5, 0, 3, 0, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 70], [33, 1, 32, 2, 64], [1, 0, 0, 0, 0]):
        c = np.array(counts, np.int32)
        arrays, want = {}, {}
        for name, (dtype, _) in dtypes.items():
            rows, w = numbers(rng, (int(c.sum()), k), dtype), numbers(rng, (experts, n, k), dtype)
            arrays |= {f"{name}.rows": rows, f"{name}.w": w, f"{name}.counts": c}
            want[name] = grouped_reference(rows, w, c)
        for order in ("forward", "reverse", "random:7"):
            got = project.outputs(arrays, {"S": int(c.sum())}, MOEC_CPU_ORDER=order)
            for name, (_, out) in dtypes.items():
                close(got[f"{name}.out"], want[name], out, k)


def test_every_site_of_every_matmul_is_caught(tmp_path: Path) -> None:
    """Two slots of L0C and one, b by n and by k, f32 and 16-bit: every site is noticed."""
    rng = np.random.default_rng(4)
    n, k = 64, 160
    kernels = {
        "mm": matmul("mm", n, k, "f32", "f32", tile=CubeTile(32, 32, 64, 32, 2)),
        "mm_by_k": matmul("mm_by_k", n, k, "f32", "f32", True, CubeTile(32, 32, 64, 32, 1)),
        "mm16_by_k": matmul("mm16_by_k", n, k, "f16", "f32", True, CubeTile(32, 32, 64, 32, 2)),
    }
    project = built(programs_of(list(kernels.values()), 2), tmp_path)
    arrays, want = {}, {}
    for name, kernel in kernels.items():
        dtype, by_k = kernel.params[0].dtype, name.endswith("by_k")
        a, b = numbers(rng, (1, 200, k), dtype), numbers(rng, (1, k, n) if by_k else (1, n, k), dtype)
        arrays |= {f"{name}.a": a, f"{name}.b": b}
        want[f"{name}.c"] = product(a, b, by_k)
    report = mask_sites(project, [Case(arrays, {"M": 200}, want)])
    assert not report.missed, f"{report}: {report.missed}"
    assert sum(report.total.values()) >= 3 * 38


def test_every_site_of_grouped_matmul_is_caught(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    experts, n, k = 3, 64, 160
    tile = CubeTile(32, 32, 64, 32, 2)
    project = built_kernel(grouped_matmul_kernel("gmm", CAPS, tile, Grouped(experts, n, k, "bf16", "f32")), tmp_path)
    counts = np.array([100, 0, 70], np.int32)
    rows, w = numbers(rng, (170, k), "bf16"), numbers(rng, (experts, n, k), "bf16")
    want = grouped_reference(rows, w, counts)
    report = mask_sites(project, [Case({"rows": rows, "w": w, "counts": counts}, {"S": 170}, {"out": want})])
    assert not report.missed, f"{report}: {report.missed}"
