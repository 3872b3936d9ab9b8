"""Moves between memories: gaps, padding, layout of Nd2Nz, atomics, against arrays worked out by hand."""

from __future__ import annotations

import numpy as np
from cpu_model_harness import bf16, run

RNG = np.random.default_rng(3)


def floats(n: int) -> np.ndarray:
    return RNG.standard_normal(n).astype(np.float32)


def test_bursts_with_gaps() -> None:
    # in: blocks of 16 floats every 24; UB: every 32; out: every 24 again
    x = floats(72)
    got = run("copy", "bursts", x)
    want = np.zeros(128, np.float32)
    for b in range(3):
        want[24 * b : 24 * b + 16] = x[24 * b : 24 * b + 16]
    want[96:112], want[112:128] = x[:16], -1  # the first 32 floats of UB: one block of data, then the gap
    assert np.array_equal(got, want)


def test_inside_ub() -> None:
    x = floats(64)
    want = np.full(64, -1, np.float32)
    want[0:8], want[24:32] = x[0:8], x[16:24]  # source step 2 blocks, destination step 3
    assert np.array_equal(run("copy", "inside_ub", x), want)


def test_pad_right() -> None:
    x = floats(28)
    got = run("copy", "pad_right", x).reshape(4, 8)
    assert np.array_equal(got[:, :5], x.reshape(4, 7)[:, :5])
    assert (got[:, 5:] == 2.5).all()


def test_pad_both_sides() -> None:
    x = floats(10).astype(np.float16)
    got = run("copy", "pad_both", x, dtype=np.float16).reshape(4, 16)
    for row, data in ((0, x[:5]), (2, x[5:])):
        assert np.array_equal(got[row], np.concatenate([[9, 9], data, np.full(9, 9)]).astype(np.float16))
    assert (got[[1, 3]] == -1).all()


def test_pad_out() -> None:
    x = floats(32)
    want = np.zeros((4, 5), np.float32)
    want[:, :3] = x.reshape(4, 8)[:, :3]
    assert np.array_equal(run("copy", "pad_out", x).reshape(4, 5), want)


def test_atomics() -> None:
    x, y = floats(8), floats(16)
    i = np.array([-5, 5, -1, 1, 0, 7, -7, 2], np.int32)
    raw = run("copy", "atomics", x, bf16(y), i, dtype=np.uint8)
    assert np.array_equal(raw[:32].view(np.float32), x + x)
    assert np.array_equal(raw[32:64].view(np.uint16), bf16(y))  # 0 + y
    assert np.array_equal(raw[64:].view(np.int32), np.maximum(i, 0))


def test_scalar_access() -> None:
    x = np.arange(10, 18, dtype=np.int32)
    assert list(run("copy", "scalars", x, dtype=np.int32)[:5]) == [13 + 14, 77, 16, 6, 16]


def test_nd2nz_of_half() -> None:
    x = floats(1400).astype(np.float16)
    want = x[200:1224].copy()  # what lay in L1 before
    for m in range(2):
        for c in range(2):  # strips of 16 columns, 16 rows of 32 bytes apart; 20 columns: the rest of strip 1 is zero
            for r in range(3):
                row = np.zeros(16, np.float16)
                take = min(16, 20 - 16 * c)
                row[:take] = x[80 * m + 24 * r + 16 * c :][:take]
                at = 512 * m + 256 * c + 16 * r
                want[at : at + 16] = row
    assert np.array_equal(run("copy", "nd2nz", x, dtype=np.float16), want)


def test_nd2nz_of_float_with_row_stride() -> None:
    x = floats(400)
    want = x[100:356].copy()
    for c in range(2):
        for r in range(4):
            row = np.zeros(8, np.float32)
            take = min(8, 13 - 8 * c)
            row[:take] = x[13 * r + 8 * c :][:take]
            at = 16 * 8 * c + 16 * r  # strips 16 rows apart, rows 2 x 32 bytes apart
            want[at : at + 8] = row
    assert np.array_equal(run("copy", "nd2nz_float", x), want)


def test_copy_through_queue() -> None:
    x = floats(64)
    assert np.array_equal(run("copy", "copy_through", x), x)


def test_static_tensors() -> None:
    x = floats(32)
    assert np.array_equal(run("copy", "static_tensors", x), x + np.float32(1))
