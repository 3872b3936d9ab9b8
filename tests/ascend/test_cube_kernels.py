"""The cube kernels on the CPU model against numpy: dtypes, odd sizes, one row, empty experts, no row at all."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from ascend_run import Case, Project, built_kernel, mask_sites

from moec.codegen.capacities import Capacities
from moec.codegen.kernels.cube import Grouped, Product, grouped_matmul_kernel, matmul_kernel
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


def matmul_project(
    folder: Path, n: int, k: int, dtype: str, out: str, by_k: bool = False, tile: CubeTile | None = None
) -> Project:
    tile = tile or cube_tile(64, n, k, dtype, CAPS)
    kernel = matmul_kernel("mm", CAPS, tile, Product(None, n, k, 1, dtype, out, by_k))
    return built_kernel(kernel, folder)


@pytest.mark.parametrize("by_k", [False, True], ids=["n_by_k", "k_by_n"])
@pytest.mark.parametrize(("dtype", "out"), [("f32", "f32"), ("f16", "f16"), ("bf16", "f32"), ("bf16", "bf16")])
def test_matmul(tmp_path: Path, dtype: str, out: str, by_k: bool) -> None:
    rng = np.random.default_rng(0)
    n, k = 126, 150
    project = matmul_project(tmp_path, n, k, dtype, out, by_k)
    b = numbers(rng, (1, k, n) if by_k else (1, n, k), dtype)
    for m in (0, 1, 2, 5, 127, 200):
        a = numbers(rng, (1, m, k), dtype)
        got = project.outputs({"a": a, "b": b}, {"M": m})["c"]
        close(got, product(a, b, by_k), out, k)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 7), (7, 126), (17, 33)])
def test_matmul_small_widths(tmp_path: Path, dtype: str, n: int, k: int) -> None:
    rng = np.random.default_rng(1)
    for by_k in (False, True):
        project = matmul_project(tmp_path / str(by_k), n, k, dtype, "f32", by_k)
        b = numbers(rng, (1, k, n) if by_k else (1, n, k), dtype)
        for m in (1, 3, 18):
            a = numbers(rng, (1, m, k), dtype)
            close(project.outputs({"a": a, "b": b}, {"M": m})["c"], product(a, b, by_k), "f32", k)


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


@pytest.mark.parametrize(("dtype", "out"), [("f32", "f32"), ("f16", "f16"), ("bf16", "bf16")])
def test_grouped_matmul(tmp_path: Path, dtype: str, out: str) -> None:
    rng = np.random.default_rng(3)
    experts, n, k = 5, 75, 90
    tile = CubeTile(32, 48, 64, 32, 2)
    project = built_kernel(grouped_matmul_kernel("gmm", CAPS, tile, Grouped(experts, n, k, dtype, out)), tmp_path)
    w = numbers(rng, (experts, n, k), dtype)
    for counts in ([5, 0, 3, 0, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 70], [33, 1, 32, 2, 64], [1, 0, 0, 0, 0]):
        c = np.array(counts, np.int32)
        rows = numbers(rng, (int(c.sum()), k), dtype)
        for order in ("forward", "reverse", "random:7"):
            inputs = {"rows": rows, "w": w, "counts": c}
            got = project.outputs(inputs, {"S": rows.shape[0]}, MOEC_CPU_ORDER=order)["out"]
            close(got, grouped_reference(rows, w, c), out, k)


def test_every_site_of_matmul_is_caught(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    n, k = 64, 160
    project = matmul_project(tmp_path, n, k, "f32", "f32", tile=CubeTile(32, 32, 64, 32, 2))
    a, b = numbers(rng, (1, 200, k), "f32"), numbers(rng, (1, n, k), "f32")
    report = mask_sites(project, [Case({"a": a, "b": b}, {"M": 200}, {"c": product(a, b, False)})])
    assert not report.missed, f"{report}: {report.missed}"


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
