"""Products of backward on the CPU model: either layout of either operand, repeated batches, gradients of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_run import EPS, ORDERS, Layer, numbers

KINDS = [("f32", "f32"), ("bf16", "f32"), ("f16", "f16"), ("bf16", "bf16")]


def close(got: np.ndarray, exact: np.ndarray, dtype: str, depth: int) -> None:
    """``depth`` products of normal numbers, each sum rounded in f32 and the last once more."""
    error = np.abs(got.astype(np.float64) - exact)
    allowed = np.abs(exact) * EPS[dtype] * 0.51 + max(depth, 1) * 2.0**-22
    assert got.shape == exact.shape and np.all(error <= allowed), float((error - allowed).max())


def counts_of(rows: int, experts: int, how: str) -> np.ndarray:
    """Rows of each expert: none in the first, all in the last but one, or spread unevenly."""
    counts = np.zeros(experts, np.int32)
    if how == "one":
        counts[-2] = rows
    elif experts > 1:
        counts[1:] = np.diff(np.linspace(0, rows, experts).astype(np.int32))
    return counts


GROUPED = [(126, 5, 4), (127, 126, 3), (16, 80, 5)]


@pytest.mark.parametrize(
    ("dtype", "out"), [KINDS[0], *(pytest.param(*k, marks=pytest.mark.slow) for k in KINDS[1:-1]), KINDS[-1]]
)
def test_gradients_of_grouped_weights_and_rows(tmp_path: Path, dtype: str, out: str) -> None:
    given, made, lines, returned = [], [], [], []
    for i, (n, k, e) in enumerate(GROUPED):
        given += [f"%g{i}: {dtype}[S, {n}], %x{i}: {dtype}[S, {k}], %w{i}: {dtype}[{e}, {n}, {k}], %c{i}: i32[{e}]"]
        made += [f"dw{i}: {out}[{e}, {n}, {k}], dx{i}: {dtype}[S, {k}]"]
        lines += [
            f"  %a{i} = grouped_matmul_dw(%g{i}, %x{i}, %c{i}) {{to = !{out}}} : {out}[{e}, {n}, {k}]",
            f"  %b{i} = grouped_matmul(%g{i}, %w{i}, %c{i}) {{transpose_weight = false}} : {dtype}[S, {k}]",
        ]
        returned += [f"%a{i}, %b{i}"]
    text = f"symbol S in [0, 100000]\nfunc main({', '.join(given)}) -> ({', '.join(made)}) {{\n"
    layer = Layer(text + "\n".join(lines) + f"\n  return {', '.join(returned)}\n}}\n", tmp_path)
    rng = np.random.default_rng(4)
    for rows, how, order in [(0, "even", "forward"), (1, "one", "forward"), (5, "even", ORDERS[1])] + [
        (126, "one", ORDERS[2]),
        (300, "even", "forward"),
    ]:
        arrays = {}
        for i, (n, k, e) in enumerate(GROUPED):
            arrays |= {f"g{i}": numbers(rng, (rows, n), dtype), f"x{i}": numbers(rng, (rows, k), dtype)}
            arrays |= {f"w{i}": numbers(rng, (e, n, k), dtype), f"c{i}": counts_of(rows, e, how)}
        got, exact = layer.run(arrays, MOEC_CPU_ORDER=order, MOEC_POISON="1"), layer.reference(arrays, fp64=True)
        for i, (n, _, _) in enumerate(GROUPED):
            close(got[f"dw{i}"], exact[f"dw{i}"], out, rows)
            close(got[f"dx{i}"], exact[f"dx{i}"], dtype, n)
            assert not np.any(got[f"dw{i}"][arrays[f"c{i}"] == 0])


PRODUCTS = [
    # a, b, transpose_a, transpose_b
    ("[M, 126]", "[M, 5]", True, False),
    ("[M, 1]", "[M, 127]", True, False),
    ("[M, 80]", "[33, M]", True, True),
    ("[2, M, 17]", "[2, M, 20]", True, False),
    ("[3, 2, M, 40]", "[2, 40, 24]", False, False),
    ("[3, 1, 40, M]", "[3, 2, 40, 24]", True, False),
    ("[40, M]", "[3, 24, 40]", True, True),
]


def _dims(text: str, size: int) -> list[int]:
    return [size if d == "M" else int(d) for d in text.strip("[]").split(", ")]


@pytest.mark.parametrize(("dtype", "out"), [pytest.param("f32", "f32", marks=pytest.mark.slow), ("bf16", "f32")])
def test_products_by_either_layout_and_repeated(tmp_path: Path, dtype: str, out: str) -> None:
    given, made, lines = [], [], []
    for i, (a, b, ta, tb) in enumerate(PRODUCTS):
        shape_a, shape_b = a.strip("[]").split(", "), b.strip("[]").split(", ")
        lead = list(np.broadcast_shapes(*([int(d) for d in s[:-2]] for s in (shape_a, shape_b))))
        result = [*map(str, lead), shape_a[-1 if ta else -2], shape_b[-2 if tb else -1]]
        kind = f"{out}[{', '.join(result)}]"
        given.append(f"%a{i}: {dtype}{a}, %b{i}: {dtype}{b}")
        made.append(f"y{i}: {kind}")
        flags = f"transpose_a = {str(ta).lower()}, transpose_b = {str(tb).lower()}, to = !{out}"
        lines.append(f"  %{i} = matmul(%a{i}, %b{i}) {{{flags}}} : {kind}")
    text = f"symbol M in [0, 1000]\nfunc main({', '.join(given)}) -> ({', '.join(made)}) {{\n" + "\n".join(lines)
    layer = Layer(text + f"\n  return {', '.join(f'%{i}' for i in range(len(PRODUCTS)))}\n}}\n", tmp_path)
    rng = np.random.default_rng(5)
    for size in (1, 5, 126, 300):
        arrays = {}
        for i, (a, b, _, _) in enumerate(PRODUCTS):
            arrays |= {f"a{i}": numbers(rng, _dims(a, size), dtype), f"b{i}": numbers(rng, _dims(b, size), dtype)}
        got, exact = layer.run(arrays), layer.reference(arrays, fp64=True)
        for i in range(len(PRODUCTS)):
            close(got[f"y{i}"], exact[f"y{i}"], out, max(size, 127))


@pytest.mark.slow
def test_grouped_product_with_a_bias(tmp_path: Path) -> None:
    text = """
symbol S in [0, 100000]
func main(%x: bf16[S, 40], %w: bf16[4, 126, 40], %c: i32[4], %b: bf16[4, 126], %u: f32[S, 16], %v: f32[4, 2060, 16],
          %d: f32[4, 2060]) -> (y: bf16[S, 126], z: f32[S, 2060]) {
  %0 = grouped_matmul(%x, %w, %c, %b) {transpose_weight = true} : bf16[S, 126]
  %1 = grouped_matmul(%u, %v, %c, %d) {transpose_weight = true} : f32[S, 2060]
  return %0, %1
}
""".replace(",\n          %d", ", %d")
    layer = Layer(text, tmp_path)
    rng = np.random.default_rng(7)
    for rows, how, order in (
        (0, "even", "forward"),
        (1, "one", "reverse"),
        (127, "even", "forward"),
        (300, "one", "random:2"),
    ):
        arrays = {
            "x": (rows, 40),
            "w": (4, 126, 40),
            "b": (4, 126),
            "u": (rows, 16),
            "v": (4, 2060, 16),
            "d": (4, 2060),
        }
        given = {n: numbers(rng, s, "bf16" if n in "xwb" else "f32") for n, s in arrays.items()}
        given["c"] = counts_of(rows, 4, how)
        got, exact = layer.run(given, MOEC_CPU_ORDER=order), layer.reference(given, fp64=True)
        close(got["y"], exact["y"], "bf16", 41)
        close(got["z"], exact["z"], "f32", 17)
