"""Forms of ops that exports use beside the usual ones: small integers, other axes, reductions of scatter, 2:4 pairs."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from vector_run import ORDERS, Layer, numbers

from moec.codegen.hazards import check

FEW = """symbol T in [1, 4000]
func main(%x: f32[T, 16], %q: u8[T, 5], %i: i64[T], %u: f32[T, 16], %z: u8[])
    -> (v: f32[T, 8], p: u8[T, 2], d: f32[T, 16], m: f32[T, 16], q: f32[T, 5], r: u8[T, 5]) {
  %1, %2 = sparse24(%x) : f32[T, 8], u8[T, 2]
  %3 = dense24(%1, %2) : f32[T, 16]
  %4 = reshape(%i) {shape = [T, 1]} : i64[T, 1]
  %5 = scatter_nd(%x, %4, %u) {reduction = "max"} : f32[T, 16]
  %6 = cast(%q) {to = !f32} : f32[T, 5]
  %7 = maximum(%q, %z) : u8[T, 5]
  return %1, %2, %3, %5, %6, %7
}
"""

MORE = """symbol T in [1, 4000]
func main(%x: bf16[T, 24], %a: i8[T, 5], %b: i8[5], %n: i32[T, 5], %i: i64[T, 1], %e: i64[4, 5], %f: f32[T, 9],
    %u: f32[4, 5], %m: bool[T, 5], %c: bool[T, 1], %s: i16[T, 5])
    -> (d: bf16[T, 24], s: f32[T, 9], k: i32[T, 9], g: f32[4, 5], h: f32[T, 9], l: f32[T, 9], o: i64[7, T],
    w: bool[T, 5], j: i8[T, 5], y: i8[T, 5], z: u8[T, 5], t: i16[T, 5], v: bool[T, 5], r: f32[T, 9],
    p: i8[T, 5]) {
  %1, %2 = sparse24(%x) : bf16[T, 12], u8[T, 3]
  %3 = dense24(%1, %2) : bf16[T, 24]
  %4 = softmax(%f) {axis = 0} : f32[T, 9]
  %5 = cast(%f) {to = !i32} : i32[T, 9]
  %6 = scatter_nd(%5, %i, %5) {reduction = "min"} : i32[T, 9]
  %7 = gather_elements(%f, %e) {axis = 0} : f32[4, 5]
  %8 = scatter_elements(%f, %e, %u) {axis = 0, reduction = "add"} : f32[T, 9]
  %9 = scatter_elements(%f, %e, %u) {axis = 0, reduction = "mul"} : f32[T, 9]
  %10 = reshape(%i) {shape = [T]} : i64[T]
  %11 = one_hot(%10) {depth = 7, axis = 0, dtype = !i64} : i64[7, T]
  %12 = and(%m, %c) : bool[T, 5]
  %13 = minimum(%a, %b) : i8[T, 5]
  %14 = cast(%n) {to = !i8} : i8[T, 5]
  %15 = cast(%n) {to = !u8} : u8[T, 5]
  %16 = cast(%n) {to = !i16} : i16[T, 5]
  %17 = lt(%s, %16) : bool[T, 5]
  %18 = log_softmax(%f) {axis = 0} : f32[T, 9]
  %19 = select(%m, %a, %b) : i8[T, 5]
  return %3, %4, %6, %7, %8, %9, %11, %12, %13, %14, %15, %16, %17, %18, %19
}
"""


def _few(rng: np.random.Generator, t: int) -> dict[str, np.ndarray]:
    ties = np.where(rng.random((t, 16)) < 0.3, -1.5, rng.integers(-2, 3, (t, 16)))
    return {
        "x": np.where(rng.random((t, 16)) < 0.5, ties, rng.standard_normal((t, 16))).astype(np.float32),
        "q": rng.integers(0, 256, (t, 5)).astype(np.uint8),
        "i": rng.integers(-t, t, t),
        "u": numbers(rng, (t, 16), "f32"),
        "z": np.array(77, np.uint8),
    }


def _more(rng: np.random.Generator, t: int) -> dict[str, np.ndarray]:
    return {
        "x": rng.standard_normal((t, 24)).astype(ml_dtypes.bfloat16),
        "a": rng.integers(-128, 128, (t, 5)).astype(np.int8),
        "b": rng.integers(-128, 128, 5).astype(np.int8),
        "n": rng.integers(-70000, 70000, (t, 5)).astype(np.int32),
        "i": rng.integers(0, min(t, 7), (t, 1)),
        "e": np.stack([rng.permutation(t)[:4] for _ in range(5)], 1),
        "f": 4 * numbers(rng, (t, 9), "f32"),
        "u": numbers(rng, (4, 5), "f32"),
        "m": rng.random((t, 5)) < 0.5,
        "c": rng.random((t, 1)) < 0.5,
        "s": rng.integers(-32768, 32768, (t, 5)).astype(np.int16),
    }


def _agrees(layer: Layer, arrays: dict[str, np.ndarray], order: str) -> None:
    got, want = layer.run(arrays, MOEC_CPU_ORDER=order), layer.reference(arrays)
    for name, w in want.items():
        if name in ("s", "r"):
            np.testing.assert_allclose(got[name], w, rtol=2e-6, atol=2e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(got[name], w, name)


def test_pairs_bytes_and_the_larger_of_what_is_scattered(tmp_path: Path) -> None:
    layer = Layer(FEW.replace("\n    ", " "), tmp_path)
    for kernel in layer.program.kernels:
        assert check(kernel) == []
    rng = np.random.default_rng(3)
    for i, t in enumerate((1, 7, 130, 3001)):
        _agrees(layer, _few(rng, t), ORDERS[i % 3])


@pytest.mark.slow
def test_every_other_form(tmp_path: Path) -> None:
    layer = Layer(MORE.replace("\n    ", " "), tmp_path)
    for kernel in layer.program.kernels:
        assert check(kernel) == []
    rng = np.random.default_rng(4)
    for i, t in enumerate((4, 127, 700)):
        _agrees(layer, _more(rng, t), ORDERS[i % 3])
