"""The reverse sweep: saves, accumulation, calls, the loss hook, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from moec.autodiff import Options, backward_nodes, differentiate
from moec.diagnostics import Refusal
from moec.eval import run
from moec.ir.text import parse_module, print_module
from moec.ir.types import BF16, F16, F32
from moec.ops.verify import verify
from tests.support.train import check_gradients, joint, rng_arrays, saves

LAYERS = """
func main(%x: f32[T, 8]) -> (y: f32[T, 6]) {
  %w = weight() {name = "w", dtype = !f32, shape = [8, 6], data = none} : f32[8, 6]
  %1 = matmul(%x, %w) {transpose_a = false, transpose_b = false, to = none} : f32[T, 6]
  %2 = call(%1) {fn = "layer"} : f32[T, 6]
  %3 = call(%2) {fn = "layer"} : f32[T, 6]
  return %3
}
func layer(%x: f32[S, 6]) -> (y: f32[S, 6]) {
  %w = weight() {name = "v", dtype = !f32, shape = [6], data = none} : f32[6]
  %1 = silu(%x) : f32[S, 6]
  %2 = call(%x, %1) {fn = "gate"} : f32[S, 6]
  %3 = mul(%2, %w) : f32[S, 6]
  return %3
}
func gate(%a: f32[R, C], %b: f32[R, C]) -> (y: f32[R, C]) {
  %1 = tanh(%a) : f32[R, C]
  %2 = mul(%1, %b) : f32[R, C]
  return %2
}
"""


def test_a_repeated_layer_is_differentiated_once() -> None:
    module = parse_module(LAYERS)
    check_gradients(module, rng_arrays(x=(3, 8)), rng_arrays(w=(8, 6), v=(6,)), ["x", "w", "v"])
    made = joint(module)
    assert sorted(made.functions) == ["gate.bwd", "gate.fwd", "layer.bwd", "layer.fwd", "main"]
    assert [n.attrs["fn"] for n in made.main if n.op == "call"] == ["layer.fwd"] * 2 + ["layer.bwd"] * 2
    assert all(n.op != "save" for n in made.functions["layer.fwd"]), "saves stand where the values are kept: in main"
    assert saves(made)[0] == "matmul: f32[T, 6]"


def test_gradients_meet_in_the_order_of_the_last_reader_first() -> None:
    module = parse_module("""
func main(%x: f32[4]) -> (y: f32[4]) {
  %1 = sin(%x) : f32[4]
  %2 = exp(%x) : f32[4]
  %3 = add(%1, %2) : f32[4]
  %4 = mul(%3, %x) : f32[4]
  return %4
}
""")
    made = joint(module)
    adds = [n for n in made.main if n.op == "add" and n in backward_nodes(made.main)]
    assert [[v.producer.op for v in n.operands if v is not None and v.producer] for n in adds] == [
        ["mul", "mul"],
        ["add", "mul"],
    ]
    assert print_module(made) == print_module(joint(module))


def test_the_only_scalar_is_the_loss() -> None:
    module = parse_module("""
func main(%x: f32[4]) -> (y: f32[4], loss: f32[]) {
  %1 = sin(%x) : f32[4]
  %2 = reduce_sum(%1) {axes = [0], keepdims = false} : f32[]
  return %1, %2
}
""")
    made = joint(module)
    assert [v.name for v in made.main.inputs] == ["x"]
    assert made.main.output_names == ["y", "loss", "d_x"]
    x = rng_arrays(x=(4,))["x"]
    np.testing.assert_allclose(run(made, {"x": x}, fp64=True)["d_x"], np.cos(x))


TWO = """
func main(%x: f32[4]) -> (a: f32[], b: f32[], y: f32[4]) {
  %1 = sin(%x) : f32[4]
  %2 = reduce_sum(%1) {axes = [0], keepdims = false} : f32[]
  %3 = reduce_prod(%x) {axes = [0], keepdims = false} : f32[]
  return %2, %3, %1
}
"""


def test_named_losses_are_summed_and_other_outputs_take_their_gradient_as_an_input() -> None:
    module = parse_module(TWO)
    with pytest.raises(Refusal, match="several outputs are scalars: a, b"):
        joint(module)
    x = rng_arrays(x=(4,))
    check_gradients(module, x, {}, ["x"], options=Options(loss=("a", "b")))
    check_gradients(module, x, {}, ["x"], options=Options(loss=("b", "y")))
    assert [v.name for v in joint(module, Options(loss=("b", "y"))).main.inputs] == ["x", "d_y"]


def test_a_result_under_two_names_gets_both_gradients() -> None:
    module = parse_module(
        """
func main(%x: f32[4]) -> (y: f32[4], z: f32[4]) {
  %1 = call(%x) {fn = "f"} : f32[4]
  return %1, %1
}
func f(%x: f32[N]) -> (y: f32[N], z: f32[N]) {
  %1 = sin(%x) : f32[N]
  return %1, %1
}
""".replace('%1 = call(%x) {fn = "f"} : f32[4]', '%1, %2 = call(%x) {fn = "f"} : f32[4], f32[4]').replace(
            "return %1, %1\n}\nfunc", "return %1, %2\n}\nfunc"
        )
    )
    check_gradients(module, rng_arrays(x=(4,)), {}, ["x"])


def test_loss_scale_reaches_every_gradient_and_is_taken_out_of_those_of_weights() -> None:
    module = parse_module("""
func main(%x: f16[4]) -> (loss: f32[]) {
  %w = weight() {name = "w", dtype = !f16, shape = [4], data = none} : f16[4]
  %1 = mul(%x, %w) : f16[4]
  %2 = cast(%1) {to = !f32} : f32[4]
  %3 = reduce_sum(%2) {axes = [0], keepdims = false} : f32[]
  return %3
}
""")
    x, w = (np.full(4, v, np.float16) for v in (3e-6, 2e-6))
    plain = run(joint(module), {"x": x}, {"w": w})
    scaled = run(joint(module, Options(weight_dtype=F32, loss_scale=1024.0)), {"x": x}, {"w": w})
    assert scaled["d_w"].dtype == np.float32 and plain["d_w"].dtype == np.float16
    np.testing.assert_array_equal(scaled["d_w"], x.astype(np.float32))
    np.testing.assert_allclose(scaled["d_x"].astype(float), 1024 * w.astype(float), rtol=1e-3)


def test_wide_gradients_of_16_bit_weights_are_products_written_in_f32() -> None:
    text = """
func main(%x: bf16[T, 64]) -> (y: bf16[T, 6]) {
  %w = weight() {name = "w", dtype = !bf16, shape = [6, 64], data = none} : bf16[6, 64]
  %1 = matmul(%x, %w) {transpose_a = false, transpose_b = true, to = none} : bf16[T, 6]
  return %1
}
"""
    own, wide = joint(parse_module(text)), joint(parse_module(text), Options(weight_dtype=F32))
    assert [n.attrs["to"] for n in own.main if n.op == "matmul"] == [None] * 3
    assert [n.attrs["to"] for n in wide.main if n.op == "matmul"] == [None, None, F32]
    assert [v.type.dtype for v in own.main.outputs] == [BF16] * 3
    assert [v.type.dtype for v in wide.main.outputs] == [BF16, BF16, F32]
    arrays = rng_arrays(x=(33, 64), d_y=(33, 6), w=(6, 64))
    given = {n: a.astype(BF16.carrier) for n, a in arrays.items()}
    found = run(wide, {n: given[n] for n in ("x", "d_y")}, {"w": given["w"]})["d_w"]
    exact = given["d_y"].astype(float).T @ given["x"].astype(float)
    assert np.abs(found - exact).max() < 1e-4 < np.abs(exact.astype(BF16.carrier).astype(float) - exact).max()


def test_products_of_weights_under_a_batch_are_one_product() -> None:
    module = parse_module("""
func main(%x: f32[B, T, 4]) -> (y: f32[B, T, 3]) {
  %w = weight() {name = "w", dtype = !f32, shape = [4, 3], data = none} : f32[4, 3]
  %1 = matmul(%x, %w) {transpose_a = false, transpose_b = false, to = none} : f32[B, T, 3]
  return %1
}
""")
    check_gradients(module, rng_arrays(x=(2, 3, 4)), rng_arrays(w=(4, 3)), ["x", "w"])
    made = joint(module)
    assert all(n.op != "reduce_sum" for n in made.main), "the sum over the batch is the product's own"


def test_sizes_that_data_decides() -> None:
    module = parse_module("""
func main(%x: f32[T, 3], %keep: bool[T]) -> (y: f32[N, 3]) {
  %1 = nonzero(%keep) {count = N} : i64[1, N]
  %2 = reshape(%1) {shape = [N]} : i64[N]
  %3 = gather(%x, %2) {axis = 0} : f32[N, 3]
  %4 = reduce_mean(%3) {axes = [0], keepdims = true} : f32[1, 3]
  %5 = mul(%3, %4) : f32[N, 3]
  return %5
}
""")
    keep = np.array([True, False, True, True, False])
    check_gradients(module, {**rng_arrays(x=(5, 3)), "keep": keep}, {}, ["x"])


def test_fused_kernels_are_taken_apart_first() -> None:
    module = parse_module("""
func main(%x: f32[T, 4]) -> (y: f32[T, 4]) {
  %1 = fused(%x) {fn = "k"} : f32[T, 4]
  return %1
}
func k(%a0: f32[S, 4]) -> (y0: f32[S, 4]) {
  %1 = sin(%a0) : f32[S, 4]
  %2 = mul(%1, %a0) : f32[S, 4]
  return %2
}
""")
    check_gradients(module, rng_arrays(x=(3, 4)), {}, ["x"])


def test_gradients_stop_at_choices_and_steps() -> None:
    module = parse_module("""
func main(%x: f32[T, 4]) -> (y: f32[T, 4]) {
  %1 = round(%x) : f32[T, 4]
  %2 = gt(%x, %1) : bool[T, 4]
  %3 = cast(%2) {to = !f32} : f32[T, 4]
  %4 = mul(%3, %x) : f32[T, 4]
  %5 = add(%4, %1) : f32[T, 4]
  return %5
}
""")
    check_gradients(module, {"x": np.array([[0.2, 0.7, -0.3, 1.1], [2.2, -1.7, 0.9, 0.4]])}, {}, ["x"])


def test_ops_without_a_gradient_are_refused_all_at_once_and_by_name() -> None:
    module = parse_module(
        """
func main(%x: f32[4], %i: i64[2]) -> (y: f32[4]) {
  %1 = scatter_elements(%x, %i, %u) {axis = 0, reduction = "mul"} : f32[4]
  %2 = loop(%n, none, %1) {body = "step", states = 1} : f32[4]
  %3 = sin(%2) : f32[4]
  return %3
}
func step(%i: i64[], %go: bool[], %s: f32[4]) -> (going: bool[], s: f32[4]) {
  return %go, %s
}
""".replace("%i: i64[2])", "%i: i64[2], %u: f32[2], %n: i64[])")
    )
    with pytest.raises(Refusal) as refused:
        differentiate(module)
    text = str(refused.value)
    assert "loop: a loop of steps" in text
    module.main  # noqa: B018 - what is left of a refused module is not to be used
    with pytest.raises(Refusal, match="scatter_elements: of products at indices"):
        differentiate(
            parse_module("""
func main(%x: f32[4], %i: i64[2], %u: f32[2]) -> (y: f32[4]) {
  %1 = scatter_elements(%x, %i, %u) {axis = 0, reduction = "mul"} : f32[4]
  return %1
}
""")
        )


def test_names_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Refusal, match="no input or weight 'xx'"):
        joint(parse_module(LAYERS), Options(wrt=("xx",)))
    with pytest.raises(Refusal, match="no output 'z'"):
        joint(parse_module(LAYERS), Options(loss=("z",)))
    with pytest.raises(Refusal, match="does not vary with 'k'"):
        joint(
            parse_module("""
func main(%x: f32[4], %k: f32[4]) -> (y: f32[4], z: f32[4]) {
  %1 = sin(%x) : f32[4]
  %2 = sin(%k) : f32[4]
  return %1, %2
}
"""),
            Options(wrt=("x", "k"), loss=("y",)),
        )
    with pytest.raises(Refusal, match="an input is called 'd_y'"):
        joint(
            parse_module("""
func main(%x: f32[4], %d_y: f32[4]) -> (y: f32[4]) {
  %1 = mul(%x, %d_y) : f32[4]
  return %1
}
""")
        )


MASKED = """
func main(%q: f32[1, 2, S, 4], %k: f32[1, 2, S, 4], %m: f32[1, 1, S, S], %t: f32[]) -> (y: f32[1, 2, S, 4]) {
  %0 = mul(%m, %t) : f32[1, 1, S, S]
  %1 = call(%q, %k, %0) {fn = "attend"} : f32[1, 2, S, 4]
  return %1
}
func attend(%q: f32[1, 2, S, 4], %k: f32[1, 2, S, 4], %m: f32[1, 1, S, S]) -> (y: f32[1, 2, S, 4]) {
  %1 = attention(%q, %k, %k, %m, none) ATTRS : f32[1, 2, S, 4]
  return %1
}
""".replace(
    "ATTRS",
    '{scale = 0.5, causal = false, offset = 0, window = none, softcap = none, empty_rows = "zero"}',
)


def test_inputs_that_make_masks_are_not_differentiated_for_unless_they_are_named() -> None:
    arrays = rng_arrays(q=(1, 2, 3, 4), k=(1, 2, 3, 4), m=(1, 1, 3, 3), t=())
    module = parse_module(MASKED)
    assert joint(module).main.output_names == ["y", "d_q", "d_k"]
    check_gradients(module, arrays, {}, ["q", "k"], options=Options())
    check_gradients(module, arrays, {}, ["q", "m", "t"])


def test_a_training_graph_is_not_differentiated_again() -> None:
    made = joint(parse_module(LAYERS))
    with pytest.raises(Refusal, match="training graph already"):
        differentiate(made)


def test_only_what_is_asked_for_is_computed() -> None:
    made = joint(parse_module(LAYERS), Options(wrt=("v",)))
    assert made.main.output_names == ["y", "d_v"]
    assert sum(n.op == "matmul" for n in made.main) == 1
    verify(made)


def test_half_precision_gradients_have_the_dtype_of_what_they_are_of() -> None:
    made = joint(
        parse_module("""
func main(%x: f16[T, 4], %y: f32[4]) -> (z: f16[T, 4]) {
  %1 = gelu(%x) {approximate = "tanh"} : f16[T, 4]
  %2 = cast(%y) {to = !f16} : f16[4]
  %3 = div(%1, %2) : f16[T, 4]
  return %3
}
""")
    )
    assert {n: v.type.dtype for n, v in zip(made.main.output_names, made.main.outputs, strict=True)} == {
        "z": F16,
        "d_x": F16,
        "d_y": F32,
    }


def test_slices_that_cover_a_tensor_give_their_gradients_to_one_concat() -> None:
    text = """
func main(%x: f32[T, 5]) -> (y: f32[T, 5]) {
  %1 = exp(%x) : f32[T, 5]
  %2 = slice(%1) {axis = 1, start = 0, stop = 2, step = 1} : f32[T, 2]
  %3 = slice(%1) {axis = 1, start = 2, stop = 5, step = 1} : f32[T, 3]
  %4 = sin(%2) : f32[T, 2]
  %5 = concat(%3, %4) {axis = 1} : f32[T, 5]
  %6 = mul(%5, %1) : f32[T, 5]
  return %6
}
"""
    check_gradients(parse_module(text), rng_arrays(x=(3, 5)), {}, ["x"])
    ops = [n.op for n in joint(parse_module(text)).main]
    assert ops.count("concat") == 2 and "pad" not in ops
    apart = text.replace("start = 2, stop = 5", "start = 1, stop = 4")
    check_gradients(parse_module(apart), rng_arrays(x=(3, 5)), {}, ["x"])
    ops = [n.op for n in joint(parse_module(apart)).main]
    assert ops.count("concat") == 1 and ops.count("pad") == 2
