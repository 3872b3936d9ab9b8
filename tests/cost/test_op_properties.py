"""Invariants of the operator model: never faster than the hardware, never faster for more work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moec.targets.ascend.machine import load, machines
from moec.targets.ascend.opmodel import attention, index, moves, products, rows
from moec.targets.ascend.opmodel.chip import Chip, chip_of
from moec.targets.ascend.opmodel.elementwise import PASSES, elementwise
from moec.targets.ascend.opmodel.estimate import estimate_work
from moec.targets.ascend.opmodel.predict import predict
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Work

CHIPS = [chip_of(load(name)) for name in machines()]
chips = st.sampled_from(CHIPS)
kinds = st.sampled_from(sorted(PASSES))
dtypes = st.sampled_from(["f32", "bf16", "f16"])
blocks = st.one_of(st.none(), st.integers(1, 48))


def is_sound(work: Work, chip: Chip, blocks: int | None) -> float:
    """The time of ``work``, after the invariants that hold for any."""
    p = predict(work, chip, blocks)
    cores = min(blocks or chip.aic, chip.aic)
    flops = sum(g.flops / (2 * chip.macs(g.dtype) * cores * chip.mhz) for g in work.gemms)
    assert p.us >= flops
    assert p.us >= work.cold / chip.hbm_peak * 1e6
    assert p.us >= work.moved / chip.l2_peak * 1e6
    assert p.us > p.launch_us > 0
    e = estimate_work(work, chip, blocks)
    assert 0 < e.low_us <= p.us <= e.high_us
    assert e.low_us >= min(p.us, p.floor_us)
    return p.us


@settings(max_examples=60, deadline=None)
@given(chips, kinds, dtypes, st.integers(1, 1 << 30), st.integers(1, 1 << 28), blocks)
def test_elementwise(chip: Chip, kind: str, dtype: str, size: int, more: int, cores: int | None) -> None:
    def us(n: int) -> float:
        x = Tensor((n,), dtype)
        return is_sound(elementwise(kind, [x, x], [x]), chip, cores)

    assert us(size) <= us(size + more) * 1.0001


def fused(x: Tensor) -> Work:
    """A product that is not split along k, whose results pass through gelu."""
    out = [Tensor((x.shape[0], 512), x.dtype)]
    return products.finished("MatmulGelu", products.matmul([x, Tensor((x.shape[1], 512), x.dtype)], out), [x], out)


FAMILIES = {
    "rms_norm": lambda x: rows.over_rows("rms_norm", [x], [x]),
    "swiglu": lambda x: rows.gated("swiglu", [Tensor((x.shape[0], 2 * x.shape[1]), x.dtype)], [x]),
    "reduce": lambda x: rows.reduce([x], [Tensor((x.shape[0],), x.dtype)]),
    "copy": lambda x: moves.copy([x], [x]),
    "fill": lambda x: moves.fill([x], [x]),
    "transpose": lambda x: moves.transpose([x], [Tensor((x.shape[1], x.shape[0]), x.dtype)]),
    "slice": lambda x: moves.strided([Tensor((x.shape[0], 2 * x.shape[1]), x.dtype)], [x]),
    "gather": lambda x: index.gather([Tensor((1000, x.shape[1]), x.dtype), Tensor((x.shape[0],), "i32")], [x]),
    "grouped": lambda x: products.grouped_matmul(
        [x, Tensor((8, x.shape[1], 512), x.dtype), Tensor((8,), "i64")], [Tensor((x.shape[0], 512), x.dtype)]
    ),
    "fused": lambda x: fused(Tensor((x.shape[0], 1024), x.dtype)),
    "compact": lambda x: index.compact([x], [x]),
    "sort": lambda x: index.sort([x], [x]),
    "topk": lambda x: index.topk([x], [Tensor((x.shape[0], 8), x.dtype)]),
    "gating": lambda x: index.gating([x], [Tensor((x.shape[0], 8), x.dtype)]),
    "permute": lambda x: index.permute(
        [x, Tensor((x.shape[0], 8), "i32")], [Tensor((8 * x.shape[0], x.shape[1]), x.dtype)]
    ),
}


@pytest.mark.parametrize("family", sorted(FAMILIES))
@settings(max_examples=15, deadline=None)
@given(chips, dtypes, st.integers(1, 1 << 15), st.integers(1, 32), st.integers(1, 1 << 14), blocks)
def test_more_rows_take_no_less(
    family: str, chip: Chip, dtype: str, count: int, width: int, more: int, cores: int | None
) -> None:
    """Rows of whole blocks of 512 bytes, as what does not fill lines moves more than it holds."""

    def us(n: int) -> float:
        return is_sound(FAMILIES[family](Tensor((n, 256 * width), dtype)), chip, cores)

    assert us(count) <= us(count + more) * 1.0001


@settings(max_examples=40, deadline=None)
@given(chips, *[st.integers(1, 64)] * 3, st.sampled_from([0, 1, 2]), st.integers(1, 32), st.integers(1, 24))
def test_products(chip: Chip, m: int, n: int, k: int, axis: int, more: int, cores: int) -> None:
    """Sides in steps of 256, so that stored rows fill lines whichever way a side lies."""

    def us(sides: list[int]) -> float:
        a, b, c = (256 * s for s in sides)
        work = products.matmul([Tensor((a, c), "bf16"), Tensor((c, b), "bf16")], [Tensor((a, b), "bf16")])
        return is_sound(work, chip, cores)

    larger = [m, n, k]
    larger[axis] += more
    assert us([m, n, k]) <= us(larger) * 1.0001


@settings(max_examples=30, deadline=None)
@given(chips, st.integers(1, 64), st.integers(1, 64), st.integers(1, 32), st.booleans())
def test_attention(chip: Chip, heads: int, length: int, more: int, backward: bool) -> None:
    make = products.attention_grad if backward else products.attention

    def us(s: int) -> float:
        seen = attention.causal_part(s, s)
        return is_sound(make(1, heads, s, s, 128, 128, "bf16", (768 * heads * s, 256 * heads * s), seen), chip, None)

    assert us(128 * length) < us(128 * (length + more))


def test_the_same_work_is_faster_on_more_cores_and_clock() -> None:
    x = Tensor((1 << 26,), "bf16")
    slow, fast = chip_of(load("ascend910b3"), 900.0), chip_of(load("ascend910b3"), 1800.0)
    assert predict(elementwise("cos", [x], [x]), fast).us < predict(elementwise("cos", [x], [x]), slow).us
    few, many = (predict(elementwise("cos", [x], [x]), fast, n).us for n in (8, 40))
    assert many < few
