"""Vector instructions against arrays worked out from the documented semantics (lanes, masks, strides, repeats)."""

from __future__ import annotations

import numpy as np
from cpu_model_harness import bf16, run

RNG = np.random.default_rng(1)


def floats(n: int) -> np.ndarray:
    return RNG.standard_normal(n).astype(np.float32)


def test_count_form_leaves_the_rest() -> None:
    x, y = floats(100), floats(100)
    want = np.full(100, 7, np.float32)
    want[:70] = x[:70] + y[:70]  # float32 addition, element by element
    assert np.array_equal(run("vector", "add_count", x, y), want)


def test_mask_and_repeat_strides() -> None:
    # repeat r: 5 lanes at x[64r..], y[64r..] -> z at block r (8 floats); the other three lanes of each block stay -1
    x, y = floats(128), floats(128)
    want = np.full(16, -1, np.float32)
    for r in range(2):
        want[8 * r : 8 * r + 5] = x[64 * r : 64 * r + 5] - y[64 * r : 64 * r + 5]
    assert np.array_equal(run("vector", "sub_mask_strides", x, y), want)


def test_bit_mask_and_block_stride() -> None:
    # source block b of 16 halves is at block 2b; 0xaa.. keeps the odd lanes
    x, y = floats(256).astype(np.float16), floats(128).astype(np.float16)
    want = np.full(128, -1, np.float16)
    for lane in range(1, 128, 2):
        source = (lane // 16) * 2 * 16 + lane % 16
        want[lane] = np.float16(np.float32(x[source]) * np.float32(y[lane]))
    assert np.array_equal(run("vector", "mul_bits_blocks", x, y, dtype=np.float16), want)


def test_repeat_stride_zero_accumulates() -> None:
    x = floats(256)
    want = np.full(64, 100, np.float32)
    for r in range(4):
        want = x[64 * r : 64 * r + 64] + want
    assert np.array_equal(run("vector", "add_accumulate", x), want)


def test_counter_mode() -> None:
    x, y = floats(128), floats(128)
    want = np.full(128, -9, np.float32)
    want[:70] = np.maximum(x, y)[:70]
    assert np.array_equal(run("vector", "max_counter", x, y), want)


def test_mask_register_low_word() -> None:
    x, y = floats(64), floats(64)
    want = np.full(64, -9, np.float32)
    want[:4] = np.minimum(x, y)[:4]
    assert np.array_equal(run("vector", "min_register", x, y), want)


def test_unary_float() -> None:
    x, y = np.abs(floats(64)) + np.float32(0.1), floats(64)
    got = run("vector", "unary_float", x, y).reshape(8, 64)
    d, e = x.astype(np.float64), y.astype(np.float64)
    want = [np.exp(e), np.log(d), np.sqrt(d), 1 / np.sqrt(d), 1 / d, abs(e), np.maximum(e, 0), e / d]
    for g, w in zip(got, want, strict=True):
        assert np.allclose(g, w, rtol=4e-7, atol=1e-7)


def test_integers_wrap_and_shift() -> None:
    x = RNG.integers(-(2**31), 2**31, 32, dtype=np.int64).astype(np.int32)
    got = run("vector", "integers", x, dtype=np.int32)
    s = x.view(np.int16)
    with np.errstate(over="ignore"):
        assert np.array_equal(got[:32], (x.astype(np.int64) * 65536).astype(np.uint64).astype(np.uint32).view(np.int32))
    assert np.array_equal(got[32:64], x >> 3)
    moved = (x.astype(np.int64) << 4) & 0x7FFFFFFF | np.where(x < 0, 0x80000000, 0)  # the sign stays
    assert np.array_equal(got[64:96], moved.astype(np.uint32).view(np.int32))
    h = got[96:].view(np.int16)
    assert np.array_equal(h[:32], s[:32] & s[32:])
    assert np.array_equal(h[32:64], ~s[:32])
    assert np.array_equal(h[64:96], s[:32] | s[32:])
    assert np.array_equal(h[96:], (s[:32].astype(np.int32) + 1).astype(np.int16))


def test_fused_forms() -> None:
    x, y = floats(64), floats(64)
    got = run("vector", "fused", x, y).reshape(6, 64)
    two = np.float32(2)
    assert np.array_equal(got[0], x * two + y)
    assert np.array_equal(got[1], x * y + two)
    assert np.array_equal(got[2], np.float32(3) * x + two)
    assert np.array_equal(got[3], np.where(x > 0, x, x * np.float32(0.5)))
    assert np.array_equal(got[4], np.maximum(x, 1))
    assert np.array_equal(got[5], np.minimum(x, 1))


def grid_round(x: np.ndarray, step: np.ndarray, mode: str) -> np.ndarray:
    """x rounded to a multiple of step, in double: step is a power of two, so the quotient is exact."""
    q = x.astype(np.float64) / step
    n = {
        "rint": np.rint(q),
        "floor": np.floor(q),
        "ceil": np.ceil(q),
        "trunc": np.trunc(q),
        "round": np.sign(q) * np.floor(np.abs(q) + 0.5),
    }.get(mode)
    if n is None:  # odd: truncate, then set the last bit when anything was lost
        t = np.trunc(q)
        n = np.where((q != t) & (np.abs(t) % 2 == 0), t + np.sign(q), t)
    return n * step


def test_cast_to_16_bit_floats() -> None:
    # ties included: 1 + k/2048 is half way between two halves for odd k, 1 + k/256 between two bfloat16
    x = np.concatenate([1 + np.arange(16) / 2048, -(1 + np.arange(16) / 256), floats(32) * 100]).astype(np.float32)
    raw = run("vector", "cast_narrow", x, dtype=np.uint16)
    exponent = np.floor(np.log2(np.abs(x.astype(np.float64))))
    for i, mode in enumerate(["rint", "floor", "ceil", "round", "trunc", "odd"]):
        want = grid_round(x, 2.0 ** (exponent - 10), mode).astype(np.float16)
        assert np.array_equal(raw[64 * i : 64 * i + 64].view(np.float16), want), mode
    for i, mode in enumerate(["rint", "floor", "ceil", "round", "trunc"]):
        want = grid_round(x, 2.0 ** (exponent - 7), mode).astype(np.float32)
        got = (raw[384 + 64 * i : 384 + 64 * i + 64].astype(np.uint32) << 16).view(np.float32)
        assert np.array_equal(got, want), mode


def test_cast_to_integers() -> None:
    x = np.concatenate([[0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3e9, -3e9, 1e5, -1e5], floats(54) * 50]).astype(np.float32)
    raw = run("vector", "cast_integers", x, dtype=np.uint8)
    z = raw[:1280].view(np.int32).reshape(5, 64)
    d = x.astype(np.float64)
    rounded = [np.rint(d), np.floor(d), np.ceil(d), np.sign(d) * np.floor(np.abs(d) + 0.5), np.trunc(d)]
    for got, want in zip(z, rounded, strict=True):
        assert np.array_equal(got, np.clip(want, -(2**31), 2**31 - 1).astype(np.int64))
    rint = z[0]
    assert np.array_equal(raw[1280:1408].view(np.int16), np.clip(np.rint(d), -32768, 32767))
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).astype(np.float64)
    assert np.array_equal(raw[1408:1472].view(np.int8), np.clip(np.rint(half), -128, 127))
    assert np.array_equal(raw[1472:1728].view(np.float32), rint.astype(np.float32))
    assert np.array_equal(raw[1728:1856].view(np.int16), np.clip(rint, -32768, 32767))
    assert np.array_equal(raw[1856:2368].view(np.int64), rint)
    assert np.array_equal(raw[2368:].view(np.float32), rint[:8].astype(np.float32))


def test_cast_to_four_bits() -> None:
    x = np.concatenate([[0.5, 1.5, -0.5, -1.5, 100, -100, 7.4, -8.4], floats(56) * 5]).astype(np.float16)
    raw = run("vector", "cast_int4", x, dtype=np.uint8)

    def packed(v: np.ndarray) -> np.ndarray:
        v = np.clip(v, -8, 7).astype(np.int8) & 15
        return (v[::2] | v[1::2] << 4).astype(np.uint8)

    wide = x.astype(np.float64)
    assert np.array_equal(raw[:32], packed(np.rint(wide)))
    assert np.array_equal(raw[32:64], packed(np.floor(wide)))
    assert np.array_equal(raw[64:192].view(np.float16), np.clip(np.floor(wide), -8, 7))
    assert np.array_equal(raw[192:].view(np.float16), np.clip(np.rint(wide), -8, 7)[:32])


def test_cast_mask_counts_the_wider_side() -> None:
    x = floats(128).astype(np.float16)
    want = np.full(128, -1, np.float32)
    for r in range(2):
        want[64 * r : 64 * r + 20] = x[64 * r : 64 * r + 20].astype(np.float32)
    assert np.array_equal(run("vector", "cast_mask", x), want)


def test_cast_in_place() -> None:
    x = floats(128)
    assert np.array_equal(run("vector", "cast_in_place", x, dtype=np.uint16), bf16(x))


def test_compare_packs_low_bit_first() -> None:
    x, y = floats(64), floats(64)
    y[::5] = x[::5]
    h = floats(128).astype(np.float16)
    i0 = np.arange(64, dtype=np.int32)
    i1 = np.where(i0 % 3 == 0, i0, -1).astype(np.int32)
    raw = run("vector", "compare", x, y, h, i0, i1, dtype=np.uint8)
    wants = [x < y, x > y, x == y, x <= y, x >= y, x != y, h > 0, i0 == i1]
    packed = np.concatenate([np.packbits(w, bitorder="little") for w in wants])
    assert np.array_equal(raw[: packed.size], packed)


def test_select_modes() -> None:
    x, y = floats(128), floats(128)
    mask = RNG.integers(0, 256, 32, dtype=np.uint8)
    bits = np.unpackbits(mask, bitorder="little").astype(bool)
    got = run("vector", "select_modes", x, y, mask).reshape(3, 128)
    assert np.array_equal(got[0], np.where(bits[:128], x, y))
    assert np.array_equal(got[1], np.where(np.tile(bits[:64], 2), x, y))
    assert np.array_equal(got[2], np.where(bits[:128], x, np.float32(-5)))


def test_fills() -> None:
    x = floats(16)
    got = run("vector", "fills", x)
    want = np.zeros(128, np.float32)
    for r in range(2):  # repeat stride 4 blocks, block stride 2: 9 lanes = one block and one lane
        for lane in range(9):
            want[32 * r + (lane // 8) * 16 + lane % 8] = 4
    assert np.array_equal(got[:128], want)
    spread = np.zeros(128, np.float32)
    for i in range(8):  # block 2i holds x[i]
        spread[16 * i : 16 * i + 8] = x[i]
    assert np.array_equal(got[128:256], spread)
    index = got[256:384].view(np.int32)
    assert np.array_equal(index[:100], np.arange(3, 103))
    assert not index[100:].any()
    assert np.array_equal(got[384:444], 1 + np.arange(60, dtype=np.float32) / 2)
    assert not got[444:].any()


def test_copy_strides() -> None:
    x = floats(256).astype(np.float16)
    want = np.full(512, -1, np.float16)
    for r in range(2):
        for lane in range(40):
            want[256 * r + (lane // 16) * 32 + lane % 16] = x[128 * r + lane]
    assert np.array_equal(run("vector", "copy_mask", x, dtype=np.float16), want)
