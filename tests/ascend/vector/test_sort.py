"""Sorting on the CPU model against the numpy reference: any length, ties, both directions, all that holds numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_moves import module, unsynchronised, values
from vector_run import ORDERS, Layer, numbers

LINES = [
    ("argsort(%x) {axis = 1, descending = true}", "i64[2, T]"),
    ("argsort(%b) {axis = 0, descending = false}", "i64[T, 3]"),
    ("argsort(%i) {axis = 0, descending = false}", "i64[S]"),
]
TEXT = module("%x: f32[2, T], %b: bf16[T, 3], %i: i64[S]", LINES, "T in [1, 100000]; S in [1, 500]")
GIVEN = "%h: f16[S, 9], %n: i32[S, 7], %m: bool[S, 5]"
TOP = f"""symbol S in [1, 500]
func main({GIVEN}) -> (a: f16[S, 4], b: i64[S, 4], c: i32[S, 7], d: i64[S, 7], e: i64[S, 5]) {{
  %1, %2 = topk(%h) {{k = 4, axis = 1, largest = true, sorted = false}} : f16[S, 4], i64[S, 4]
  %3, %4 = topk(%n) {{k = 7, axis = 1, largest = false, sorted = true}} : i32[S, 7], i64[S, 7]
  %5 = argsort(%m) {{axis = 1, descending = true}} : i64[S, 5]
  return %1, %2, %3, %4, %5
}}
"""


def _inputs(rng: np.random.Generator, t: int, s: int) -> dict[str, np.ndarray]:
    """Numbers many of which are equal, infinities, and integers of all of 32 bits."""
    x = np.round(numbers(rng, (2, t), "f32"), 1)
    x[:, ::7] = np.inf
    x[:, 1::5] = -np.inf
    whole = values(rng, (s,), "i64")
    whole[::3] = 7
    return {"x": x, "b": numbers(rng, (t, 3), "bf16"), "i": whole}


def test_orders(tmp_path: Path) -> None:
    layer = Layer(TEXT, tmp_path)
    rng = np.random.default_rng(0)
    for i, (t, s) in enumerate(((1, 1), (5, 33), (126, 127), (4097, 129), (9000, 500))):
        arrays = _inputs(rng, t, s)
        got, want = layer.run(arrays, MOEC_CPU_ORDER=ORDERS[i % 3]), layer.reference(arrays)
        for name, order in want.items():
            np.testing.assert_array_equal(got[name], order, f"{name} at {t}, {s}")


def test_the_largest_and_the_smallest(tmp_path: Path) -> None:
    layer = Layer(TOP, tmp_path)
    rng = np.random.default_rng(1)
    for s in (1, 5, 127):
        arrays = {"h": np.round(numbers(rng, (s, 9), "f16")), "n": values(rng, (s, 7), "i32") >> 28}
        arrays["m"] = values(rng, (s, 5), "bool")
        got, want = layer.run(arrays), layer.reference(arrays)
        for name, w in want.items():
            np.testing.assert_array_equal(got[name].astype(np.float64), w.astype(np.float64), f"{name} at {s}")


@pytest.mark.slow
def test_nan_counts_as_infinity(tmp_path: Path) -> None:
    text = module("%h: f16[S, 9]", [("argsort(%h) {axis = 1, descending = true}", "i64[S, 9]")], "S in [1, 500]")
    x = np.array([[1, np.nan, 3, -np.inf, np.nan, 2, 0, -1, 5]], np.float16)
    got = Layer(text, tmp_path).run({"h": x})
    np.testing.assert_array_equal(got["y0"], [[1, 4, 8, 2, 5, 0, 6, 7, 3]])


@pytest.mark.slow
def test_every_site_is_noticed(tmp_path: Path) -> None:
    lines = [("argsort(%x) {axis = 1, descending = true}", "i64[2, T]")]
    layer = Layer(module("%x: f32[2, T]", lines, "T in [1, 100000]"), tmp_path, cores=2)
    rng = np.random.default_rng(2)
    cases = [{"x": numbers(rng, (2, t), "f32")} for t in (4096, 2 * 512 + 3, 3 * 4096 + 70)]
    cases.append({"x": np.arange(2 * 3 * 4096, dtype=np.float32).reshape(2, -1)})  # later lists come first
    report = layer.mask(cases)
    print(report)
    # behind a list in the workspace there is room: whole blocks may be stored
    missed = [text for text in report.missed.values() if "DataCopyPad(work[" not in text]
    assert not missed, f"{report}: {missed}"


@pytest.mark.slow
def test_kernels_are_synchronised_for_every_size() -> None:
    assert not unsynchronised(TEXT)
    assert not unsynchronised(TOP)
