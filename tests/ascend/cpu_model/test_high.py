"""The high-level library of the CPU model against formulas of its documents, in numpy."""

from __future__ import annotations

import numpy as np
from cpu_model_harness import refusal, run

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def near(got: np.ndarray, want: np.ndarray, rtol: float = 2e-6) -> None:
    np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-6)


def test_softmax() -> None:
    x = floats(3, 40)
    got = run("high", "softmax", x)
    e = np.exp(x[:, :37] - x[:, :37].max(1, keepdims=True))
    want = np.zeros((3, 40), np.float32)
    want[:, :37] = e / e.sum(1, keepdims=True)
    near(got[:120].reshape(3, 40), want)
    assert np.array_equal(got[:120], got[120:240])
    near(got[240:264].reshape(3, 8), np.repeat(e.sum(1, keepdims=True), 8, 1))
    near(got[264:].reshape(3, 8), np.repeat(x[:, :37].max(1, keepdims=True), 8, 1))


def test_softmax_of_half_keeps_its_sums_in_float() -> None:
    x = floats(2, 16).astype(np.float16)
    raw = run("high", "softmax_half", x, dtype=np.uint8)
    e = np.exp(x.astype(np.float32) - x.max(1, keepdims=True))
    near(raw[:64].view(np.float16).reshape(2, 16).astype(np.float32), e / e.sum(1, keepdims=True), 1e-3)
    near(raw[64:].view(np.float32).reshape(2, 8)[:, 0], e.sum(1))


def test_flash_softmax_goes_on_from_earlier_parts() -> None:
    x = floats(2, 2, 16)
    got = run("high", "flash", x)
    top = x.max((0, 2))
    near(got[:32].reshape(2, 16), np.exp(x[1] - top[:, None]))
    near(got[32:48].reshape(2, 8)[:, 0], np.exp(x - top[None, :, None]).sum((0, 2)))
    near(got[48:64].reshape(2, 8)[:, 7], top)
    near(got[64:].reshape(2, 8)[:, 3], np.exp(x[0].max(1) - top))


def test_activations() -> None:
    x = floats(2, 64)
    got = run("high", "activations", x).reshape(5, 64)
    a, g = x.astype(np.float64)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    near(got[0], a * g * sigmoid(1.5 * g), 1e-5)
    near(got[1], a * sigmoid(a), 1e-5)
    near(got[2], 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))), 1e-5)
    near(got[3], a * sigmoid(1.5 * a), 1e-5)
    near(got[4], a * sigmoid(1.702 * a), 1e-5)


def test_norms() -> None:
    x, g, beta = floats(2, 16), floats(16), floats(16)
    got = run("high", "norms", np.concatenate([x.ravel(), g, beta]))
    rows = x[:, :13].astype(np.float64)
    rms, layer = np.zeros((2, 16)), np.zeros((2, 16))
    rms[:, :13] = rows / np.sqrt((rows**2).mean(1, keepdims=True) + 1e-5) * g[:13]
    mean, var = rows.mean(1, keepdims=True), rows.var(1, keepdims=True)
    layer[:, :13] = (rows - mean) / np.sqrt(var + 1e-5) * g[:13] + beta[:13]
    near(got[:32].reshape(2, 16), rms, 1e-5)
    near(got[32:64].reshape(2, 16), layer, 1e-5)
    near(got[64:66], mean[:, 0], 1e-5)
    near(got[66:], var[:, 0], 1e-5)


def test_rows() -> None:
    x = floats(3, 16)
    got = run("high", "rows", x)
    near(got[:3], x[:, :11].sum(1), 1e-5)
    near(got[3:6], x[:, :11].mean(1), 1e-5)
    near(got[6:54].reshape(3, 16), np.cumsum(x, 1), 1e-5)
    near(got[54:102].reshape(3, 16), np.cumsum(x, 0), 1e-5)
    near(got[102:118], x.sum(0), 1e-5)
    assert np.array_equal(got[118:150].reshape(2, 16), np.repeat(x.ravel()[:2, None], 16, 1))
    assert np.array_equal(got[150:].reshape(2, 16), np.repeat(x[:1], 2, 0))


def test_topk_prefers_the_lower_place() -> None:
    x = floats(2, 32)
    x[0, 7] = x[0, 3] = 9  # equal
    x[:, 30:] = 100  # beyond n
    own = RNG.permutation(64).astype(np.int32).reshape(2, 32)
    raw = run("high", "topk", x, own, dtype=np.int32).reshape(4, 2, 8)
    values = raw[[0, 2]].view(np.float32)
    rows = x[:, :30]
    down, up = np.argsort(-rows, 1, kind="stable")[:, :5], np.argsort(rows, 1, kind="stable")[:, :5]
    assert np.array_equal(values[0, :, :5], np.take_along_axis(rows, down, 1)) and list(down[0, :2]) == [3, 7]
    assert np.array_equal(raw[1, :, :5], down)
    assert np.array_equal(values[1, :, :5], np.take_along_axis(rows, up, 1))
    assert np.array_equal(raw[3, :, :5], np.take_along_axis(own, up, 1))


def test_quantisation() -> None:
    x = floats(64)
    x[:2] = 100, -100  # saturate
    acc = RNG.integers(-1000, 1000, (2, 16)).astype(np.int32)
    scale = floats(8)
    raw = run("high", "quant", x, acc, scale.view(np.uint32).astype(np.uint64), dtype=np.uint8)
    h = (x.astype(np.float16) * np.float16(10)).astype(np.float16) + np.float16(3)
    q = np.clip(np.rint(h.astype(np.float32)), -128, 127).astype(np.int8)
    assert np.array_equal(raw[:64].view(np.int8), q)
    assert np.array_equal(raw[64:192].view(np.float16), ((q.astype(np.float32) - 3) * 0.125).astype(np.float16))
    want = np.zeros((2, 16), np.float16)
    want[:, :8] = (acc[:, :8] * scale).astype(np.float16)
    assert np.array_equal(raw[192:256].view(np.float16).reshape(2, 16), want)
    assert np.array_equal(raw[256:].view(np.float32), (acc.ravel() * np.float32(0.75)).astype(np.float32))


def test_what_the_library_would_not_take_is_refused() -> None:
    assert "read of memory never written" in refusal("high", "scratch", floats(64))
    assert "misaligned row" in refusal("high", "ragged", floats(64))
