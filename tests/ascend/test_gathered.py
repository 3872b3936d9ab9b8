"""Grouped products of gathered rows on the CPU model: dtypes, odd sizes, empty experts, one token, rows used often or
not at all; and every flag and barrier of the kernels taken out in turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ascend_run import Case, built, mask_sites, programs_of
from vector_run import EPS, Layer, numbers

from moec.codegen.capacities import Capacities
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.grouped_dw import GroupedDW, grouped_dw_kernel
from moec.codegen.tiling import CubeTile
from moec.ir.text import parse_module, print_module
from moec.passes.base import PassManager

SIZES = [(126, 5, 4), (127, 126, 3), (16, 80, 5)]
"""n, k, experts."""


def layer(dtype: str, out: str, folder: Path) -> Layer:
    """Both products of gathered rows at all sizes, weights by either layout."""
    given, made, lines, returned = [], [], [], []
    for i, (n, k, e) in enumerate(SIZES):
        rows = f"{dtype}[S, {n}]"
        given.append(f"%g{i}: {rows}, %x{i}: {dtype}[T, {k}], %w{i}: {dtype}[{e}, {n}, {k}], %c{i}: i32[{e}]")
        given.append(f"%v{i}: {dtype}[{e}, {k}, {n}], %s{i}: i32[S]")
        made.append(f"y{i}: {dtype}[S, {n}], z{i}: {dtype}[S, {n}], dw{i}: {out}[{e}, {n}, {k}]")
        lines += [
            f"  %a{i} = grouped_matmul(%x{i}, %w{i}, %c{i}, none, %s{i}) {{transpose_weight = true}} : {rows}",
            f"  %b{i} = grouped_matmul(%x{i}, %v{i}, %c{i}, none, %s{i}) {{transpose_weight = false}} : {rows}",
            f"  %d{i} = grouped_matmul_dw(%g{i}, %x{i}, %c{i}, %s{i}) {{to = !{out}}} : {out}[{e}, {n}, {k}]",
        ]
        returned.append(f"%a{i}, %b{i}, %d{i}")
    text = (
        f"symbol S in [0, 100000]\nsymbol T in [0, 100000]\nfunc main({', '.join(given)}) -> ({', '.join(made)}) {{\n"
    )
    return Layer(text + "\n".join(lines) + f"\n  return {', '.join(returned)}\n}}\n", folder)


def spread(rows: int, experts: int) -> np.ndarray:
    """Rows of each expert, none in the first."""
    counts = np.zeros(experts, np.int32)
    counts[1:] = np.diff(np.linspace(0, rows, experts).astype(np.int32))
    return counts


@pytest.mark.parametrize(
    ("dtype", "out"), [("f32", "f32"), pytest.param("f16", "f16", marks=pytest.mark.slow), ("bf16", "f32")]
)
def test_products_of_gathered_rows(tmp_path: Path, dtype: str, out: str) -> None:
    made = layer(dtype, out, tmp_path)
    rng = np.random.default_rng(4)
    for rows, tokens, order in [(0, 3, "forward"), (1, 1, "reverse"), (5, 2, "random:3"), (300, 126, "forward")]:
        arrays = {}
        for i, (n, k, e) in enumerate(SIZES):
            arrays |= {f"g{i}": numbers(rng, (rows, n), dtype), f"x{i}": numbers(rng, (tokens, k), dtype)}
            arrays |= {f"w{i}": numbers(rng, (e, n, k), dtype), f"v{i}": numbers(rng, (e, k, n), dtype)}
            arrays |= {f"c{i}": spread(rows, e), f"s{i}": rng.integers(0, tokens, rows).astype(np.int32)}
        got, exact = made.run(arrays, MOEC_CPU_ORDER=order, MOEC_POISON="1"), made.reference(arrays, fp64=True)
        for i, (_, k, _) in enumerate(SIZES):
            for name, kind, depth in ((f"y{i}", dtype, k), (f"z{i}", dtype, k), (f"dw{i}", out, rows)):
                error = np.abs(got[name].astype(np.float64) - exact[name])
                allowed = np.abs(exact[name]) * EPS[kind] * 0.51 + max(depth, 1) * 2.0**-22
                assert got[name].shape == exact[name].shape and np.all(error <= allowed), (name, rows)
            assert not np.any(got[f"dw{i}"][arrays[f"c{i}"] == 0])


@pytest.mark.slow
def test_a_bias_beside_gathered_rows(tmp_path: Path) -> None:
    text = """
symbol S in [0, 100000]
func main(%x: bf16[T, 40], %w: bf16[4, 126, 40], %c: i32[4], %b: bf16[4, 126], %s: i32[S]) -> (y: bf16[S, 126]) {
  %0 = grouped_matmul(%x, %w, %c, %b, %s) {transpose_weight = true} : bf16[S, 126]
  return %0
}
""".replace("func", "symbol T in [0, 100000]\nfunc", 1)
    rng = np.random.default_rng(7)
    arrays = {n: numbers(rng, s, "bf16") for n, s in (("x", (9, 40)), ("w", (4, 126, 40)), ("b", (4, 126)))}
    arrays |= {"c": spread(50, 4), "s": rng.integers(0, 9, 50).astype(np.int32)}
    made = Layer(text, tmp_path)
    got, exact = made.run(arrays)["y"].astype(np.float64), made.reference(arrays, fp64=True)["y"]
    assert np.all(np.abs(got - exact) <= np.abs(exact) * EPS["bf16"] * 0.51 + 40 * 2.0**-22)


@pytest.mark.slow
def test_rows_sorted_by_number_only(tmp_path: Path) -> None:
    """As gather-rows leaves a layer: numbers of tokens are sorted, and the product takes the tokens by them."""
    given = "%x: f32[T, 40], %e: i32[T, 2], %c: i32[4], %w: f32[4, 24, 40]"
    text = f"""
symbol T in [0, 100000]
func main({given}) -> (y: f32[T, 24]) {{
  %rows, %at = permute(%x, %e, %c) : f32[2*T, 40], i32[T, 2]
  %0 = grouped_matmul(%rows, %w, %c) {{transpose_weight = true}} : f32[2*T, 24]
  %1 = unpermute(%0, %at, none) : f32[T, 24]
  return %1
}}
"""
    module = parse_module(text)
    PassManager.parse("gather-rows{always=true}").run(module)
    assert [n.op for n in module.main if n.op != "reshape"] == ["iota", "permute", "grouped_matmul", "unpermute"]
    made = Layer(print_module(module), tmp_path)
    rng = np.random.default_rng(3)
    for tokens in (0, 1, 5, 131):
        experts = rng.integers(1, 4, (tokens, 2)).astype(np.int32)
        arrays = {"x": numbers(rng, (tokens, 40), "f32"), "e": experts, "w": numbers(rng, (4, 24, 40), "f32")}
        arrays["c"] = np.bincount(experts.ravel(), minlength=4).astype(np.int32)
        want = np.einsum("th,tknh->tn", arrays["x"].astype(np.float64), arrays["w"].astype(np.float64)[experts])
        got = made.run(arrays, MOEC_CPU_ORDER="reverse")["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=80 * 2.0**-22)


@pytest.mark.slow
def test_every_site_is_caught(tmp_path: Path) -> None:
    caps, experts, n, k = Capacities(aic=2, aiv=2), 3, 64, 288
    deep = CubeTile(32, 32, 128, 32, 2, 64)
    kernels = [
        grouped_matmul_kernel("gmm", caps, deep, Grouped(experts, n, k, "bf16", "f32", gathered_hi=1000)),
        grouped_dw_kernel(
            "dw", caps, CubeTile(32, 32, 64, 32, 2), GroupedDW(experts, n, k, "f32", "f32", gathered_hi=1000)
        ),
    ]
    rng = np.random.default_rng(5)
    counts, source = np.array([150, 0, 70], np.int32), rng.integers(0, 90, 220).astype(np.int32)
    rows, w = numbers(rng, (90, k), "bf16"), numbers(rng, (experts, n, k), "bf16")
    x, dy = numbers(rng, (90, k), "f32"), numbers(rng, (220, n), "f32")
    laid = rows[source].astype(np.float64)
    want = np.concatenate([laid[:150] @ w[0].astype(np.float64).T, laid[150:] @ w[2].astype(np.float64).T])
    wide = x[source].astype(np.float64)
    dw = np.stack([dy[:150].T @ wide[:150], np.zeros((n, k)), dy[150:].T @ wide[150:]])
    arrays = {"gmm.rows": rows, "gmm.w": w, "gmm.counts": counts, "gmm.source": source}
    arrays |= {"dw.dy": dy, "dw.rows": x, "dw.counts": counts, "dw.source": source, "dw.out": np.zeros((3, n, k), "f4")}
    project = built(programs_of(kernels, 2), tmp_path)
    report = mask_sites(project, [Case(arrays, {"S": 220, "R": 90}, {"gmm.out": want, "dw.out": dw})])
    assert not report.missed, f"{report}: {report.missed}"
