"""Every form of the CPU model's high-level functions and operators against formulas of their documents, in numpy."""

from __future__ import annotations

import numpy as np
from cpu_model_harness import line_of, refusal, run

RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def near(got: np.ndarray, want: np.ndarray, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(got, np.broadcast_to(want, got.shape), rtol=rtol, atol=1e-6)


def test_softmax() -> None:
    x = floats(2, 16)
    e = np.exp(x[:, :13] - x[:, :13].max(1, keepdims=True))
    want = np.zeros((2, 16))
    want[:, :13] = e / e.sum(1, keepdims=True)
    near(run("forms", "softmax_forms", x).reshape(6, 2, 16), want)


def test_half_rows_with_float_statistics() -> None:
    x = floats(2, 16).astype(np.float16)
    raw = run("forms", "half_forms", x, dtype=np.uint8)
    rows = raw[:256].view(np.float16).reshape(4, 2, 16).astype(np.float32)
    e = np.exp(x.astype(np.float32) - x.astype(np.float32).max(1, keepdims=True))
    near(rows[:2], e / e.sum(1, keepdims=True), 1e-3)
    near(rows[2:], e, 1e-3)
    sums = raw[256:].view(np.float32).reshape(2, 2, 8)
    near(sums[:, :, 0], np.stack([e.sum(1), 2 * e.sum(1)]))  # the second part is the first once more


def test_activations() -> None:
    x = floats(2, 64)
    a, g = x.astype(np.float64)
    got = run("forms", "activation_forms", x).reshape(3, 2, 64)
    near(got[0], a * g / (1 + np.exp(-1.5 * g)))
    near(got[1], a / (1 + np.exp(-1.702 * a)))
    gap = np.minimum(np.abs(0.7071 * a), 1.769) - 1.769
    near(got[2], a * (np.sign(a) * (0.5 - 0.1444 * gap**2) + 0.5), 1e-4)


def test_quantisation() -> None:
    x, scale, offset = floats(2, 32) * 20, floats(32) + 2, floats(32)
    got = run("forms", "quant_forms", x, scale, offset, dtype=np.int8).reshape(10, 2, 32)

    def wanted(s: np.ndarray | float, o: np.ndarray | float) -> np.ndarray:
        half = (x.astype(np.float16) * np.float16(s)).astype(np.float16) + np.float16(o)
        return np.clip(np.rint(half.astype(np.float32)), -128, 127).astype(np.int8)

    assert (got[:2] == wanted(2.0, 1.0)).all()
    assert (got[2:6] == wanted(scale.astype(np.float16), 1.0)).all()
    assert (got[6:] == wanted(scale.astype(np.float16), offset.astype(np.float16))).all()


def test_back_from_int32() -> None:
    x, scale = RNG.integers(-1000, 1000, (2, 16)).astype(np.int32), floats(16)
    got = run("forms", "dequant_forms", x, scale).reshape(5, 32)
    whole = (x.astype(np.float32) * scale).ravel()
    assert (got[:2] == whole).all()
    assert (got[2:4] == np.where(np.arange(32) < 24, whole, 0)).all()
    assert (got[4] == (x * np.float32(0.5)).ravel()).all()


def test_back_from_int8() -> None:
    x = RNG.integers(-128, 128, (4, 32)).astype(np.int8)
    scale, offset = (2.0 ** -RNG.integers(0, 6, 32)).astype(np.float16), RNG.integers(-8, 8, 32).astype(np.float16)
    got = run("forms", "antiquant_forms", x, scale, offset, dtype=np.float16).reshape(6, 4, 32).astype(np.float32)
    wide, s, o = x.astype(np.float32), scale.astype(np.float32), offset.astype(np.float32)
    assert (got[:2] == (wide + o) * s).all()
    assert (got[2] == wide * s).all()
    assert (got[3:5] == (wide + 2) * 0.25).all()
    assert (got[5] == wide * 0.25).all()


def test_transpose() -> None:
    x = floats(16, 32)
    assert (run("forms", "transpose_forms", x).reshape(2, 32, 16) == x.T).all()
    assert "scenario that is not modelled" in refusal("forms", "scenario", floats(64))


def test_operators() -> None:
    x, y = floats(64), floats(64)
    y[:5] = x[:5]
    i, j = (RNG.integers(-(2**15), 2**15, 32).astype(np.int16) for _ in range(2))
    raw = run("forms", "operators", x, y, i, j, dtype=np.uint8)
    near(raw[:1024].view(np.float32).reshape(4, 64), np.stack([x + y, x - y, x * y, x / y]), 1e-6)
    assert (raw[1024:1152].view(np.int16).reshape(2, 32) == np.stack([i & j, i | j])).all()
    bits = raw[1152:].reshape(6, 32)[:, :8]
    want = np.stack([x < y, x > y, x <= y, x >= y, x == y, x != y])
    assert (np.unpackbits(bits, axis=1, bitorder="little") == want).all()


def test_shifts_keep_the_sign_of_signed_types() -> None:
    """The first number is the documents' example: 1010 1010 1010 1010 by 1 and by 3, signed and not."""
    u = np.array([0b1010101010101010, 1, 0x8000, 0xFFFF, 0x7FFF, 0, *RNG.integers(0, 2**16, 10)], np.uint16)
    signed, plain = run("forms", "shifts", u, dtype=np.uint16).reshape(2, 5, 16)
    assert (signed[0, 0], signed[1, 0]) == (0b1101010101010100, 0b1101010101010000)
    assert (plain[0, 0], plain[1, 0]) == (0b0101010101010100, 0b0101010101010000)
    wide = u.astype(np.int64)
    left = [wide << n & 0xFFFF for n in (1, 3, 16)]
    assert (plain == np.stack([*left, wide >> 1, wide * 0])).all()
    right = [(u.view(np.int16).astype(np.int64) >> n) & 0xFFFF for n in (1, 16)]
    assert (signed == np.stack([*(x & 0x7FFF | wide & 0x8000 for x in left), *right])).all()
    assert "ShiftLeft by 33: 0 to 32" in refusal("forms", "shift_too_far", np.zeros(16, np.int32))


def test_an_expression_is_named_by_its_line() -> None:
    message = refusal("forms", "operators_unwritten", floats(64))
    assert "read of memory never written" in message
    assert f"forms.cpp:{line_of('forms', 'operators_unwritten')}" in message
