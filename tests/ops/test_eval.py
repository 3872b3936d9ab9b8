"""The evaluator: rounding once, fp64 mode, binding of symbols, and refusals that name the node."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from moec import eval as reference
from moec.diagnostics import Refusal
from moec.ir.text import parse_module

BF16 = ml_dtypes.bfloat16


def test_sixteen_bit_matmul_accumulates_in_f32_and_rounds_once() -> None:
    m = parse_module("""
func main(%a: bf16[4, 512], %b: bf16[512, 4]) -> (y: bf16[4, 4]) {
  %0 = matmul(%a, %b) {transpose_a = false, transpose_b = false, to = none} : bf16[4, 4]
  return %0
}
""")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 512)).astype(BF16), rng.standard_normal((512, 4)).astype(BF16)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    y = reference.run(m, {"a": a, "b": b})["y"]
    assert y.dtype == BF16
    ulp = np.spacing(exact.astype(np.float32)) * 2.0**16
    assert (np.abs(y.astype(np.float64) - exact) <= 0.51 * np.abs(ulp)).all()
    full = reference.run(m, {"a": a, "b": b}, fp64=True)["y"]
    assert full.dtype == np.float64
    np.testing.assert_allclose(full, exact, rtol=1e-12)


def test_fp64_mode_does_not_round_at_casts() -> None:
    m = parse_module("""
func main(%x: f32[3]) -> (y: f32[3]) {
  %0 = cast(%x) {to = !bf16} : bf16[3]
  %1 = cast(%0) {to = !f32} : f32[3]
  return %1
}
""")
    x = np.array([1.0001, 2.0002, 3.0003], np.float32)
    assert (reference.run(m, {"x": x})["y"] != x).all()
    assert (reference.run(m, {"x": x}, fp64=True)["y"] == x).all()


NONZERO = """
symbol T in [0, 8]
symbol n in [0, 8]
func main(%x: f32[T]) -> (i: i64[1, n], y: f32[n + 1]) {
  %0 = nonzero(%x) {count = n} : i64[1, n]
  %1 = reshape(%0) {shape = [n]} : i64[n]
  %2 = gather(%x, %1) {axis = 0} : f32[n]
  %3 = pad(%2) {before = [0], after = [1], value = 7.0} : f32[n + 1]
  return %0, %3
}
"""


@pytest.mark.parametrize("x", [[], [0.0], [1.0, 0.0, 2.0]])
def test_a_data_dependent_size_is_bound_by_the_op_that_makes_it(x: list[float]) -> None:
    out = reference.run(parse_module(NONZERO), {"x": np.array(x, np.float32)})
    assert out["y"].tolist() == [v for v in x if v] + [7.0]


def test_a_size_outside_its_bounds_is_refused() -> None:
    with pytest.raises(Refusal, match=r"T = 9 is outside \[0, 8\]"):
        reference.run(parse_module(NONZERO), {"x": np.zeros(9, np.float32)})


def test_inputs_that_do_not_fit_are_all_named() -> None:
    m = parse_module("func main(%x: f32[2], %i: i64[2]) -> (y: f32[2]) {\n  return %x\n}\n")
    with pytest.raises(Refusal) as info:
        reference.run(m, {"i": np.zeros(2, np.float32)})
    assert "input 'x' (f32[2]) is not given" in str(info.value) and "input 'i' is float32" in str(info.value)


def test_a_failing_node_is_named() -> None:
    m = parse_module(
        "func main(%x: f32[2], %i: i64[1]) -> (y: f32[1]) {\n"
        "  %0 = gather(%x, %i) {axis = 0} : f32[1]\n  return %0\n}\n",
        "layer.mir",
    )
    with pytest.raises(Refusal, match=r"layer.mir:2 gather: cannot evaluate gather: index out of range"):
        reference.run(m, {"x": np.zeros(2, np.float32), "i": np.array([5])})


def test_a_weight_without_data_is_taken_by_name_or_asked_for() -> None:
    m = parse_module(
        "func main(%x: f32[2]) -> (y: f32[2]) {\n"
        '  %w = weight() {name = "w", dtype = !f32, shape = [2], data = none} : f32[2]\n'
        "  %0 = add(%x, %w) : f32[2]\n  return %0\n}\n"
    )
    x = np.ones(2, np.float32)
    assert reference.run(m, {"x": x}, {"w": np.array([1, 2], np.float32)})["y"].tolist() == [2, 3]
    with pytest.raises(Refusal, match="weight 'w' has no data"):
        reference.run(m, {"x": x})


def test_a_function_is_called_at_several_sizes() -> None:
    m = parse_module("""
symbol T in [1, 8]
func double(%x: f32[n]) -> (y: f32[n]) {
  %0 = add(%x, %x) : f32[n]
  return %0
}

func main(%x: f32[T], %z: f32[2*T]) -> (a: f32[T], b: f32[2*T]) {
  %0 = call(%x) {fn = "double"} : f32[T]
  %1 = call(%z) {fn = "double"} : f32[2*T]
  return %0, %1
}
""")
    out = reference.run(m, {"x": np.ones(2, np.float32), "z": np.ones(4, np.float32)})
    assert out["a"].tolist() == [2, 2] and out["b"].tolist() == [2, 2, 2, 2]


def test_errors_count_nan_and_infinity_once() -> None:
    inf, nan = np.inf, np.nan
    assert reference.error_between(np.array([nan, inf, 1.0]), np.array([nan, inf, 1.5])) == (0.5, 0.5 / 1.5)
    assert reference.error_between(np.array([nan, 1.0]), np.array([1.0, 1.0]))[0] == inf
