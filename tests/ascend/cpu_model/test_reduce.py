"""Reductions, gathers, sorting and layout changes against arrays worked out from the documented semantics."""

from __future__ import annotations

import numpy as np
from cpu_model_harness import run

RNG = np.random.default_rng(2)


def floats(n: int) -> np.ndarray:
    return RNG.standard_normal(n).astype(np.float32)


def tree(v: np.ndarray) -> np.floating:
    """Neighbours are added, then their sums, and so on; an odd one passes through."""
    a = list(v)
    while len(a) > 1:
        a = [a[i] + a[i + 1] if i + 1 < len(a) else a[i] for i in range(0, len(a), 2)]
    return a[0]


def test_whole_reduce_sum() -> None:
    x = floats(192)
    want = np.full(16, -1, np.float32)
    for r in range(3):
        want[2 * r] = tree(x[64 * r : 64 * r + 60])
    assert np.array_equal(run("reduce", "whole_sum", x), want)


def test_whole_reduce_extremes() -> None:
    x = floats(128)
    x[70] = x[90] = 9  # equal maxima: the lower index wins
    h = floats(256).astype(np.float16)
    raw = run("reduce", "whole_extreme", x, h, dtype=np.uint32)
    f = raw.view(np.float32)
    rows = x.reshape(2, 64)
    assert [f[0], f[2]] == list(rows.max(1))
    assert list(raw[[1, 3]]) == list(rows.argmax(1)) and raw[3] == 6
    assert list(raw[[8, 10]]) == list(rows.argmin(1))
    assert [f[9], f[11]] == list(rows.min(1))
    assert list(f[16:18]) == list(rows.max(1))
    assert list(raw[24:26]) == list(rows.argmax(1))
    half = raw[32:].view(np.uint16)
    hrows = h.reshape(2, 128)
    assert list(half[[0, 2]].view(np.float16)) == list(hrows.max(1))
    assert list(half[[1, 3]]) == list(hrows.argmax(1))  # index in the bits of a half
    assert list(half[16:20].view(np.uint32)) == list(hrows.argmin(1))  # ORDER_ONLY_INDEX: uint32 even for half


def test_block_reduce() -> None:
    x = floats(128)
    blocks = x.reshape(16, 8)
    want = np.full(64, -7, np.float32)
    want[:16] = [tree(b) for b in blocks]
    want[16:19] = [blocks[0].max(), blocks[1].max(), blocks[2][:4].max()]  # 20 lanes: two blocks and a half
    want[32:40] = blocks[:8].min(1)
    want[48:56] = blocks[8:].min(1)  # dst repeat stride 2: in units of eight results
    assert np.array_equal(run("reduce", "block_reduce", x), want)


def test_pair_reduce() -> None:
    x = floats(128)
    pairs = x.reshape(64, 2)
    want = np.full(128, -7, np.float32)
    want[:64] = pairs[:, 0] + pairs[:, 1]
    want[64], want[66] = want[0], want[2]  # 0x33: lanes 0,1 and 4,5; pairs that are masked off keep the old value
    assert np.array_equal(run("reduce", "pair_reduce", x), want)


def test_reduce_all() -> None:
    x = floats(300)
    raw = run("reduce", "reduce_all", x)
    sums = [tree(x[i : i + 64]) for i in range(0, 300, 64)]
    assert raw[0] == tree(np.array(sums, np.float32))
    assert raw[8] == x.max() and raw[9:10].view(np.uint32)[0] == x.argmax()
    assert raw[16] == x.min()


def test_gathers() -> None:
    x = floats(128)
    o = RNG.integers(0, 100, 40).astype(np.uint32) * 4
    p = RNG.permutation(16)[:8].astype(np.uint32) * 32
    got = run("reduce", "gathers", x, o, p)
    assert np.array_equal(got[:40], x[16 + o // 4])
    for i in range(8):  # dst block stride 2
        assert np.array_equal(got[40 + 16 * i : 48 + 16 * i], x[p[i] // 4 : p[i] // 4 + 8])


def test_gather_mask() -> None:
    x = floats(160)
    m = RNG.integers(0, 2**32, 8, dtype=np.uint64).astype(np.uint32)
    got = run("reduce", "gather_mask", x, m)
    kept = x[:128][np.arange(128) % 4 == 1]  # pattern 4: the second of four
    assert got[254] == 32 and np.array_equal(got[:32], kept)
    bits = np.unpackbits(m.view(np.uint8), bitorder="little")[:70].astype(bool)
    own = np.concatenate([x[80 * r : 80 * r + 70][bits] for r in range(2)])  # repeat stride 10 blocks = 80 floats
    assert got[255] == own.size and np.array_equal(got[64 : 64 + own.size], own)


def test_sort32_and_merge() -> None:
    x = np.round(floats(64) * 3).astype(np.float32)  # many ties
    index = np.arange(64, dtype=np.uint32)
    h = RNG.permutation(32).astype(np.float16)
    raw = run("reduce", "sorts", x, index, h, dtype=np.uint32)
    f = raw.view(np.float32)
    for g in range(2):
        order = np.argsort(-x[32 * g : 32 * g + 32], kind="stable")
        assert np.array_equal(raw[64 * g + 1 : 64 * g + 64 : 2], index[32 * g : 32 * g + 32][order])
        assert np.array_equal(f[64 * g : 64 * g + 64 : 2], x[32 * g : 32 * g + 32][order])
    order = np.argsort(-x, kind="stable")
    assert np.array_equal(f[128:256:2], x[order]) and np.array_equal(raw[129:256:2], index[order])
    assert np.array_equal(f[256:320], x[order]) and np.array_equal(raw[320:384], index[order])
    half = raw[384:448].view(np.uint16).reshape(32, 4)  # 8 bytes a record: half, 2 bytes reserved, index
    horder = np.argsort(-h.astype(np.float32), kind="stable")
    assert np.array_equal(half[:, 0].copy().view(np.float16), h[horder])
    assert np.array_equal(half[:, 2], horder)


def test_merge_of_four_lists() -> None:
    x = RNG.permutation(128).astype(np.float32)
    index = np.arange(128, dtype=np.uint32)
    raw = run("reduce", "merge_four", x, index, dtype=np.uint32)
    order = np.argsort(-x, kind="stable")
    assert np.array_equal(raw[0:256].view(np.float32)[::2], x[order]) and np.array_equal(raw[1:256:2], index[order])
    taken = raw[256:260].view(np.float32)
    lists = [np.sort(x[32 * k : 32 * k + 32])[::-1] for k in range(4)]
    last = max(v[-1] for v in lists)  # the list whose smallest is largest is used up first
    assert list(taken) == [float((v >= last).sum()) for v in lists]


def test_full_sort() -> None:
    x = RNG.permutation(96).astype(np.float32)
    index = np.arange(96, dtype=np.uint32)
    raw = run("reduce", "full_sort", x, index, dtype=np.uint32)
    order = np.argsort(-x)
    assert np.array_equal(raw.view(np.float32)[::2], x[order]) and np.array_equal(raw[1::2], order)


def test_layout() -> None:
    x = RNG.integers(-999, 999, 256).astype(np.int16)
    y = RNG.integers(-999, 999, 128).astype(np.int32)
    raw = run("reduce", "layout", x, y, dtype=np.int16)
    assert np.array_equal(raw[:256].reshape(16, 16), x.reshape(16, 16).T)
    assert np.array_equal(raw[256:512].reshape(16, 16), x.reshape(16, 16).T)
    # 32-bit: 16 blocks of 8; destination blocks 2i and 2i+1 hold element i of blocks 0..7 and 8..15
    assert np.array_equal(raw[512:].view(np.int32).reshape(8, 16), y.reshape(16, 8).T)
