"""What programs of the layer language compute, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from moec.diagnostics import Refusal
from moec.eval import run
from moec.frontend.dsl import parse_moe


def _run(text: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    return run(parse_moe(text), inputs)


def test_operators_bind_as_in_python() -> None:
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    text = "input x: f32[3, 4]\noutput y = 1 - x * 2 ** 2 / -x - x, z = -x ** 2 + 3, m = x < 0 & x >= -1 | x == x"
    out = _run(text, x=x)
    np.testing.assert_array_equal(out["y"], 1 - x * 2**2 / -x - x)
    np.testing.assert_array_equal(out["z"], -(x**2) + 3)
    np.testing.assert_array_equal(out["m"], ((x < 0) & (x >= -1)) | (x == x))


def test_remainder_has_the_sign_of_the_divisor() -> None:
    x = np.array([-3.5, -1, 0, 1, 3.5], np.float32)
    np.testing.assert_array_equal(_run("input x: f32[5]\noutput y = x % 2", x=x)["y"], x % 2)


def test_subscripts_are_numpys() -> None:
    x = np.arange(6 * 5 * 4, dtype=np.float32).reshape(6, 5, 4)
    text = """
dim T in [3, 9]
input x: f32[T, 5, 4]
output a = x[0], b = x[..., -1], c = x[1:-1, ..., 2:], d = x[:, ::2, 3], e = x[-1, -2, -3], f = x[2:T:3]
"""
    out = _run(text, x=x)
    for name, expected in {
        "a": x[0], "b": x[..., -1], "c": x[1:-1, ..., 2:], "d": x[:, ::2, 3], "e": x[-1, -2, -3], "f": x[2:6:3],
    }.items():  # fmt: skip
        np.testing.assert_array_equal(out[name], expected)


def test_dot_t_swaps_the_last_two_dimensions_fused_into_a_product_or_not() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.integers(-4, 4, (2, 2, 3, 4)).astype(np.float32)
    out = _run("input q: f32[2, 3, 4], k: f32[2, 3, 4]\nt = k.T\noutput s = q @ k.T, r = q @ t, t", q=q, k=k)
    np.testing.assert_array_equal(out["s"], q @ k.swapaxes(1, 2))
    np.testing.assert_array_equal(out["r"], out["s"])
    np.testing.assert_array_equal(out["t"], k.swapaxes(1, 2))


def test_a_dimension_beside_a_tensor_is_its_size() -> None:
    text = """
dim T in [1, 9]
input x: f32[T]
output mean = reduce_sum(x, axes = [0], keepdims = false) / T, n = tensor(0, i64) + T
"""
    out = _run(text, x=np.arange(5, dtype=np.float32))
    assert out["mean"] == 2 and out["n"] == 5


def test_a_function_serves_every_size_of_its_dimensions() -> None:
    text = """
dim T in [1, 9]
input x: f32[T, 4], w: f32[6, 4]
fn norm[N, D](x: f32[N, D], eps: float) -> f32[N, D] {
    return x * rsqrt(reduce_sum(x * x, axes = [1], keepdims = true) / D + eps)
}
output y = norm(x, 0.5), z = norm(w, 0.5)
"""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal((6, 4)).astype(np.float32)
    out = _run(text, x=x, w=w)
    for got, given in ((out["y"], x), (out["z"], w)):
        np.testing.assert_allclose(got, given / np.sqrt((given**2).mean(1, keepdims=True) + 0.5), rtol=1e-6)


def test_a_function_may_use_a_size_that_no_argument_has() -> None:
    text = """
dim T in [1, 9]
input x: f32[T]
fn f(a) { return a + reduce_sum(iota(size = T, dtype = f32), axes = [0], keepdims = false) }
output y = f(tensor(1.0, f32)), z = x
"""
    assert _run(text, x=np.zeros(4, np.float32))["y"] == 7


def test_the_loss_leaves_out_ignored_labels_and_counts_in_f32() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((2, 3, 7)) * 4, np.array([[0, -100, 6], [3, 3, -100]])
    text = "input x: {}[2, 3, 7], l: i64[2, 3]\noutput y = cross_entropy(x, l, ignore = {})"
    exact = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, np.maximum(labels, 0)[..., None], -1)[..., 0]
    y = run(parse_moe(text.format("f32", -100)), {"x": logits, "l": labels}, fp64=True)["y"]
    np.testing.assert_allclose(y, np.where(labels < 0, 0, exact), rtol=1e-12)
    half = run(parse_moe(text.format("f16", -100)), {"x": logits, "l": labels})["y"]
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, y, atol=0.02)
    large = run(parse_moe(text.format("f32", -100)), {"x": logits * 1e4, "l": labels})["y"]
    assert np.isfinite(large).all()
    for wrong in (-100, 7):
        with pytest.raises(Refusal, match=r"labels lie outside 0 \.\. 6"):
            run(parse_moe(text.format("f32", "none")), {"x": logits, "l": np.full((2, 3), wrong)})


def test_layers_in_a_row_each_have_their_own_weights() -> None:
    text = """
input x: f32[2]
layer scale(x) = "s" {
    weight w: f32[2]
    return x * w
}
layer both(x, y) {
    return scale["first"](x) + y, scale["second"](y)
}
h = x
for i in 1:3 {
    h = scale["loop", i:i + 1](h) + i
}
a, b = both[2](scale[3](h), h)
output a, b
"""
    rng = np.random.default_rng(1)
    names = [f"s.{i}.w" for i in range(3)] + ["loop.1.w", "loop.2.w"]
    names += [f"both.{i}.{n}.w" for i in range(2) for n in ("first", "second")]
    w = {n: rng.standard_normal(2) for n in names}
    module = parse_moe(text)
    assert {n.attrs["name"] for n in module.main if n.op == "weight"} == set(names)
    assert list(module.functions) == ["main", "scale", "both"]
    given = rng.standard_normal(2)
    out = run(module, {"x": given}, w, fp64=True)
    x = (given * w["loop.1.w"] + 1) * w["loop.2.w"] + 2
    a, b = x * w["s.0.w"] * w["s.1.w"] * w["s.2.w"], x
    for i in range(2):
        a, b = a * w[f"both.{i}.first.w"] + b, b * w[f"both.{i}.second.w"]
    np.testing.assert_allclose(out["a"], a, rtol=1e-12)
    np.testing.assert_allclose(out["b"], b, rtol=1e-12)


def test_a_host_step_computes_what_the_device_would() -> None:
    text = """
dim T in [1, 9]
input x: f32[T]
far = to_host(x)
host {
    shifted = far - 1
    for i in 0:2 {
        shifted = shifted * shifted
    }
    count = reduce_sum(cast(shifted > 1, to = i64), axes = [0], keepdims = false)
}
n = size(count, at_most = T)
output y = to_device(shifted), z = iota(size = n, dtype = i32)
"""
    x = np.array([0, 1, 3, -2], np.float32)
    out = _run(text, x=x)
    np.testing.assert_array_equal(out["y"], (x - 1) ** 4)
    np.testing.assert_array_equal(out["z"], [0, 1])
    with pytest.raises(Refusal, match=r"the size count = 4 is outside \[0, 3\]"):
        _run(text.replace("at_most = T", "at_most = 3"), x=x + 9)
