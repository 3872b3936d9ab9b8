"""What forward saves for backward: roots, wide casts, index choices; what is made again instead."""

from __future__ import annotations

import numpy as np

from moec.autodiff import backward_nodes
from moec.ir.text import parse_module
from tests.support.train import check_gradients, joint, rng_arrays, saves


def test_each_value_is_saved_once_and_every_reader_of_forward_reads_saves() -> None:
    module = parse_module("""
func main(%x: f32[T, 4]) -> (y: f32[T, 4]) {
  %1 = exp(%x) : f32[T, 4]
  %2 = mul(%1, %1) : f32[T, 4]
  %3 = sin(%2) : f32[T, 4]
  %4 = mul(%3, %1) : f32[T, 4]
  return %4
}
""")
    check_gradients(module, rng_arrays(x=(3, 4)), {}, ["x"])
    made = joint(module)
    assert saves(made) == ["exp: f32[T, 4]", "mul: f32[T, 4]", "sin: f32[T, 4]"]
    backward = backward_nodes(made.main)
    forward = [n for n in made.main if n not in backward and n.operands]
    for node in forward:
        for v in node.results:
            assert node.op == "save" or not any(user in backward for user in v.uses), node


def test_views_are_saved_at_their_root_and_wide_casts_before_they_widen() -> None:
    module = parse_module("""
func main(%x: bf16[T, 4]) -> (y: f32[2, 2*T]) {
  %1 = exp(%x) : bf16[T, 4]
  %2 = cast(%1) {to = !f32} : f32[T, 4]
  %3 = reshape(%2) {shape = [2, 2*T]} : f32[2, 2*T]
  %4 = sin(%3) : f32[2, 2*T]
  return %4
}
""")
    made = joint(module)
    assert saves(made) == ["exp: bf16[T, 4]"]
    assert [n.op for n in made.main].count("reshape") == 3, "forward's, its repetition, and its gradient"


def test_weights_inputs_and_constants_are_not_saved_nor_is_their_layout() -> None:
    module = parse_module("""
func main(%x: f32[T, 4]) -> (y: f32[T, 3]) {
  %w = weight() {name = "w", dtype = !f32, shape = [3, 4], data = none} : f32[3, 4]
  %1 = transpose(%w) {perm = [1, 0]} : f32[4, 3]
  %2 = matmul(%x, %1) {transpose_a = false, transpose_b = false, to = none} : f32[T, 3]
  return %2
}
""")
    check_gradients(module, rng_arrays(x=(3, 4)), rng_arrays(w=(3, 4)), ["x", "w"])
    assert saves(joint(module)) == []


def test_number_ranges_are_made_again_and_index_choices_are_saved() -> None:
    module = parse_module("""
func main(%x: f32[T, 4]) -> (y: f32[T, 2]) {
  %v, %i = topk(%x) {k = 2, axis = 1, largest = true, sorted = true} : f32[T, 2], i64[T, 2]
  %n = iota() {size = 2, dtype = !f32} : f32[2]
  %1 = mul(%v, %n) : f32[T, 2]
  return %1
}
""")
    x = np.array([[0.3, -1.0, 0.9, 0.1], [2.0, 1.0, 0.0, -1.0]])
    check_gradients(module, {"x": x}, {}, ["x"])
    made = joint(module)
    assert saves(made) == ["i: i64[T, 2]"]
    assert [n.op for n in made.main].count("iota") == 2


def test_what_is_laid_out_of_a_saved_value_is_laid_out_again() -> None:
    module = parse_module("""
func main(%x: f32[T, 4]) -> (y: f32[4, T], z: f32[T, 2]) {
  %1 = exp(%x) : f32[T, 4]
  %2 = transpose(%1) {perm = [1, 0]} : f32[4, T]
  %3 = sin(%2) : f32[4, T]
  %4 = slice(%1) {axis = 1, start = 0, stop = 2, step = 1} : f32[T, 2]
  %5 = sin(%4) : f32[T, 2]
  return %3, %5
}
""")
    check_gradients(module, rng_arrays(x=(3, 4)), {}, ["x"])
    assert saves(joint(module)) == ["exp: f32[T, 4]"]


def test_parts_of_a_value_are_saved_where_the_whole_is_not() -> None:
    module = parse_module("""
func main(%x: f32[T, 4]) -> (y: f32[2, T]) {
  %1 = add(%x, %x) : f32[T, 4]
  %2 = slice(%1) {axis = 1, start = 0, stop = 2, step = 1} : f32[T, 2]
  %3 = transpose(%2) {perm = [1, 0]} : f32[2, T]
  %4 = sin(%3) : f32[2, T]
  return %4
}
""")
    check_gradients(module, rng_arrays(x=(3, 4)), {}, ["x"])
    assert saves(joint(module)) == ["transpose: f32[2, T]"]
