"""The cube chain: every product is compared with the plain matrix product of the row-major inputs.

Inputs are small integers, so float32 sums are exact in any order and equality is exact. A wrong fractal order, a wrong
transpose or a tail that takes part would change the result.
"""

from __future__ import annotations

import numpy as np
import pytest
from cpu_model_harness import bf16, run

RNG = np.random.default_rng(4)


def whole(*shape: int) -> np.ndarray:
    return RNG.integers(-8, 9, shape).astype(np.float32)


@pytest.mark.parametrize(("case", "m", "k", "n"), [("matmul_half", 20, 40, 35), ("load3d", 32, 64, 48)])
def test_half(case: str, m: int, k: int, n: int) -> None:
    a, b = whole(m, k), whole(k, n)
    assert np.array_equal(run("cube", case, a.astype(np.float16), b.astype(np.float16)).reshape(m, n), a @ b)


def test_bf16() -> None:
    a, b = whole(32, 64), whole(64, 48)
    assert np.array_equal(run("cube", "matmul_bf16", bf16(a), bf16(b)).reshape(32, 48), a @ b)


def test_float() -> None:
    a, b = whole(20, 24), whole(24, 32)
    assert np.array_equal(run("cube", "matmul_float", a, b).reshape(20, 32), a @ b)


def test_hf32_rounds_to_eleven_bits() -> None:
    # 1 + 2^-11 survives, 1 + 2^-12 is a tie and goes to the even 1, 1 + 3*2^-12 goes up to 1 + 2^-10
    a = np.eye(16, dtype=np.float32)
    b = np.ones((16, 16), np.float32)
    b[0, :3] = [1 + 2.0**-11, 1 + 2.0**-12, 1 + 3 * 2.0**-12]
    got = run("cube", "matmul_hf32", a, b).reshape(16, 16)
    want = np.ones((16, 16))
    want[0, :3] = [1 + 2.0**-11, 1, 1 + 2.0**-10]
    assert np.array_equal(got, want)


def test_int8() -> None:
    a, b = RNG.integers(-128, 128, (16, 32)).astype(np.int8), RNG.integers(-128, 128, (32, 32)).astype(np.int8)
    want = a.astype(np.int32) @ b.astype(np.int32)
    assert np.array_equal(run("cube", "matmul_int8", a, b, dtype=np.int32).reshape(16, 32), want)
    scaled = run("cube", "dequant", a, b, dtype=np.float16).reshape(16, 32)
    assert np.array_equal(scaled, (want * 0.5).astype(np.float32).astype(np.float16))
    scale = (2.0 ** -RNG.integers(0, 6, 32)).astype(np.float32)
    columns = run("cube", "dequant_columns", a, b, scale.view(np.uint32).astype(np.uint64), dtype=np.float16)
    scaled = (want * scale).astype(np.float32).astype(np.float16)
    assert np.array_equal(columns[:512].reshape(16, 32), scaled)
    assert np.array_equal(columns[512:].reshape(2, 16, 16), np.stack([scaled[:, :16], scaled[:, 16:]]))  # NZ in L1


def test_bias_and_accumulation() -> None:
    a, b, bias = whole(16, 32), whole(32, 16), whole(16)
    got = run("cube", "accumulate_bias", a.astype(np.float16), b.astype(np.float16), bias).reshape(16, 16)
    assert np.array_equal(got, a @ b + bias)


def test_vector_times_matrix() -> None:
    a, b = whole(1, 48), whole(48, 32)
    assert np.array_equal(run("cube", "vector_matrix", a.astype(np.float16), b.astype(np.float16)), (a @ b)[0])


def test_load3d_turns_float() -> None:
    a_t, b = whole(16, 32), whole(16, 16)
    assert np.array_equal(run("cube", "load3d_float", a_t, b).reshape(32, 16), a_t.T @ b)


def test_unit_flag() -> None:
    a, b = whole(16, 32), whole(32, 16)
    assert np.array_equal(run("cube", "unit_flag", a.astype(np.float16), b.astype(np.float16)).reshape(16, 16), a @ b)


def test_chained_through_l1() -> None:
    a, b = whole(16, 16), whole(16, 16)
    got = run("cube", "chained", a.astype(np.float16), b.astype(np.float16)).reshape(16, 16)
    assert np.array_equal(got, (a @ b).astype(np.float16).astype(np.float32) @ b)


def test_ways_out_of_l0c() -> None:
    a, b = whole(16, 32), whole(32, 32)
    c = a @ b
    raw = run("cube", "fixpipe_forms", a.astype(np.float16), b.astype(np.float16), dtype=np.uint8)
    rows = raw[: 10 * 40 * 2].view(np.float16).reshape(10, 40)
    assert np.array_equal(rows[:, :30], np.maximum(c[:10, :30], 0).astype(np.float16))  # relu; exactly 30 columns
    assert not rows[:, 30:].any()
    strips = np.stack([c[:, :16], c[:, 16:]])  # NZ: column blocks of 16
    assert np.array_equal(raw[2048:3072].view(np.uint16).reshape(2, 16, 16), bf16(strips))
    f = raw[4096:].view(np.float32)
    assert np.array_equal(f[:512].reshape(2, 16, 16), strips)  # float keeps blocks of 16 columns ...
    assert np.array_equal(
        f[512:1024].reshape(4, 16, 8), np.stack([c[:, 8 * i : 8 * i + 8] for i in range(4)])
    )  # ... 8 when split
    assert np.array_equal(f[1024:1536].reshape(2, 16, 16), strips)  # two matrices of 16 x 16, written as rows
