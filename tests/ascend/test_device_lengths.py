"""Lengths that only the device knows: kernels read them, buffers have room for the most there may be, nobody waits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_run import ORDERS, Layer

from moec.codegen.capacities import Capacities
from moec.codegen.hazards import check
from moec.codegen.lengths import LENGTH, Length, upper
from moec.codegen.lower import lower_module
from moec.codegen.program_text import parse_program, print_program
from moec.ir.symbol import bounds, ceildiv, dmax, dmin, evaluate, floordiv, mod, sym
from moec.ir.text import parse_module
from moec.targets.ascend.target import load_target

FEW = """symbol T in [1, 50000]
symbol n in [0, 100000]
func main(%x: f32[T, 20], %i: i64[T], %count: i32[]) -> (e: f32[n, 20], s: f32[n], i: i32[n], m: i32[]) {
  %a = device_size(%count) {value = n, at_most = 2*T} : i32[]
  %1 = iota() {size = n, dtype = !i32} : i32[n]
  %2 = reshape(%1) {shape = [n, 1]} : i32[n, 1]
  %3 = cast(%2) {to = !f32} : f32[n, 1]
  %4 = slice(%x) {axis = 0, start = 0, stop = 1, step = 1} : f32[1, 20]
  %5 = mul(%3, %4) : f32[n, 20]
  %6 = reduce_sum(%5) {axes = [1], keepdims = false} : f32[n]
  %7 = reduce_max(%1) {axes = [0], keepdims = false} : i32[]
  return %5, %6, %1, %7
}
"""

MANY = """symbol T in [1, 5000]
symbol n in [0, 5000]
func main(%x: f32[T, 20], %w: f32[20, 24], %g: f32[3, 20, 24], %counts: i32[3], %e: i32[T, 2], %v: f32[T, 20])
    -> (m: f32[n, 24], k: f32[20, 24], r: f32[n, 24], t: f32[20, n], p: f32[n, 20], q: f32[T, 20], c: f32[10, n],
    h: f32[3, 20, 24], d: f32[2, n, 20], o: i64[n]) {
  %0 = reduce_sum(%counts) {axes = [0], keepdims = false} : i32[]
  %a = device_size(%0) {value = n, at_most = T} : i32[]
  %1 = slice(%x) {axis = 0, start = 0, stop = n, step = 1} : f32[n, 20]
  %2 = matmul(%1, %w) {transpose_a = false, transpose_b = false, to = none} : f32[n, 24]
  %3 = matmul(%1, %2) {transpose_a = true, transpose_b = false, to = none} : f32[20, 24]
  %4 = grouped_matmul(%1, %g, %counts) {transpose_weight = false} : f32[n, 24]
  %5 = transpose(%1) {perm = [1, 0]} : f32[20, n]
  %6 = softmax(%1) {axis = 1} : f32[n, 20]
  %7 = iota() {size = n, dtype = !i64} : i64[n]
  %8 = reshape(%7) {shape = [n, 1]} : i64[n, 1]
  %9 = scatter_nd(%v, %8, %6) {reduction = "none"} : f32[T, 20]
  %10 = slice(%5) {axis = 0, start = 3, stop = 13, step = 1} : f32[10, n]
  %11 = grouped_matmul_dw(%1, %2, %counts) {to = !f32} : f32[3, 20, 24]
  %12 = reshape(%1) {shape = [1, n, 20]} : f32[1, n, 20]
  %13 = concat(%12, %12) {axis = 0} : f32[2, n, 20]
  %14 = slice(%2) {axis = 1, start = 0, stop = 1, step = 1} : f32[n, 1]
  %15 = reshape(%14) {shape = [n]} : f32[n]
  %16 = argsort(%15) {axis = 0, descending = false} : i64[n]
  return %2, %3, %4, %5, %6, %9, %10, %11, %13, %16
}
"""


def whole(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Small whole numbers, whose sums and products are exact."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def _agrees(layer: Layer, arrays: dict[str, np.ndarray], **environment: str) -> None:
    got, want = layer.run(arrays, **environment), layer.reference(arrays)
    for name, w in want.items():
        np.testing.assert_allclose(got[name], w, rtol=1e-5, atol=1e-5, err_msg=name)


def _reads_nothing(layer: Layer) -> None:
    """Kernels take the length; the host learns of it when all is done."""
    text = (layer.project.folder / "host" / "main.cpp").read_text()
    flow = text[text.index("int main") : text.index("aclrtSynchronizeStream")]
    assert "DEVICE_TO_HOST" not in flow and "SynchronizeEvent" not in flow and "size_n" not in flow
    assert not layer.program.binds() and layer.program.read_all_the_same() == []
    assert parse_program(print_program(layer.program)) == layer.program
    for launch in layer.program.launches():
        kernel = layer.program.kernel(launch.kernel)
        assert [p.name for p in kernel.params if p.role == LENGTH] == [p for p, _ in launch.lengths]
        assert check(kernel) == []


def test_kernels_read_the_length_and_the_host_does_not(tmp_path: Path) -> None:
    layer = Layer(FEW, tmp_path)
    _reads_nothing(layer)
    rng = np.random.default_rng(0)
    for i, (t, n) in enumerate(((1, 0), (5, 1), (70, 127), (3000, 5999))):
        arrays = {"x": whole(rng, (t, 20)), "i": np.zeros(t, np.int64), "count": np.array(n, np.int32)}
        _agrees(layer, arrays, MOEC_CPU_ORDER=ORDERS[i % 3], MOEC_POISON="1")
    arrays = {"x": whole(rng, (4, 20)), "i": np.zeros(4, np.int64), "count": np.array(9, np.int32)}
    with pytest.raises(AssertionError, match="n is 9, and there is room for 0 to 8"):
        layer.run(arrays)


@pytest.mark.slow
def test_every_family_of_kernels_reads_it(tmp_path: Path) -> None:
    layer = Layer(MANY.replace("\n    ", " "), tmp_path)
    _reads_nothing(layer)
    rng = np.random.default_rng(1)
    for i, (t, counts) in enumerate(((1, (0, 0, 0)), (5, (0, 3, 0)), (127, (100, 0, 27)), (700, (0, 511, 2)))):
        shapes = {"x": (t, 20), "w": (20, 24), "g": (3, 20, 24), "v": (t, 20)}
        arrays = {name: whole(rng, shape) for name, shape in shapes.items()}
        arrays |= {"counts": np.array(counts, np.int32), "e": np.zeros((t, 2), np.int32)}
        _agrees(layer, arrays, MOEC_CPU_ORDER=ORDERS[i % 3], MOEC_POISON="1")


def test_the_schedule_is_that_of_the_length_not_of_the_room() -> None:
    program = lower_module(parse_module(FEW), Capacities(), {"T": 50000})
    target = load_target("ascend910b1")
    few, most = (target.schedule(program, {"T": 50000, "n": n}).us for n in (16, 100000))
    assert target.schedule(program, {"T": 50000}).us == most > 1.4 * few


def test_a_size_that_a_list_of_numbers_needs_is_read() -> None:
    text = FEW.replace("  return %5", "  %8 = dims() {values = [n], scalar = true} : i64[]\n  return %5")
    text = text.replace("m: i32[])", "m: i32[], z: i64[])").replace("%1, %7\n", "%1, %7, %8\n")
    program = lower_module(parse_module(text), Capacities(), {})
    assert program.read_all_the_same() == ["n"] and list(program.binds()) == ["n"] and not program.lengths


def test_upper_bounds_hold() -> None:
    n, t = sym("n"), sym("T")
    lengths = {"n": Length("n", "count", 1, 2 * t)}
    dims = [n, 3 * n + t, 5 * t - n, ceildiv(n, 7), floordiv(9 * t, n), mod(n, 5), dmin(n, t), dmax(n, 3) * n, t]
    for dim in dims:
        high = upper(dim, lengths)
        for size in range(1, 12):
            most = max(evaluate(dim, {"n": k, "T": size}) for k in range(1, 2 * size + 1))
            assert most <= evaluate(high, {"T": size}) <= bounds(dim, {"n": (1, 2 * size), "T": (size, size)})[1], dim
