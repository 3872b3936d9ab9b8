"""The gradient of attention against central differences in f64, in all its forms, and in 16 bit within rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from grad_cases import FORMS, PLAIN, attention_operands
from op_gradients import check_gradients, feeds_of, gradient_module

from moec.eval import run
from moec.ir.types import BF16, F16, DType
from moec.ops import OPS
from moec.ops.attention import attention_scores, repeated

F32_LEAST = -3.4028234663852886e38
"""The finite minimum that exporters write into masks."""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_the_differences(form: str, seed: int) -> None:
    attrs, sizes = FORMS[form]
    given = attention_operands(np.random.default_rng(seed), **sizes)
    check_gradients("attention_stats", given, {**PLAIN, **attrs}, seed, skip=[3])


def test_rows_that_attend_nothing_get_and_give_exact_zeros() -> None:
    """Query 0 and key 3 of a causal window that starts below all keys, and a masked row."""
    given = attention_operands(np.random.default_rng(0), rows=4, keys=6)
    mask = np.ones((2, 1, 4, 6), bool)
    mask[1, :, 2] = False
    given[3] = mask
    found = check_gradients("attention_stats", given, {**PLAIN, "causal": True, "window": 2, "offset": -1}, skip=[3])
    dq, dk, dv = (found[f"g{i}"] for i in range(3))
    assert not dq[:, :, 0].any() and not dq[1, :, 2].any() and dq[0, :, 2].any()
    assert not dk[:, :, 3:].any() and not dv[:, :, 3:].any() and dv[:, :, 2].any()


PADDED = {
    "plain": ({}, {}),
    "grouped heads": ({"causal": True}, {"heads": 4, "own": 2}),
    "sinks": ({}, {"sinks": True}),
    "a rotary key for all heads": ({"softcap": 1.5}, {"rope": 2}),
    "everything": ({"causal": True, "window": 3, "softcap": 2.0}, {"heads": 4, "own": 2, "sinks": True, "rope": 2}),
}


@pytest.mark.parametrize("low", [-1e4, F32_LEAST, F32_LEAST / 2, -np.inf], ids=str)
@pytest.mark.parametrize("form", PADDED)
def test_padded_masks_with_rows_that_are_masked_throughout(form: str, low: float) -> None:
    """The last keys of the second sequence are padding, and so are its last queries: their rows are masked throughout.

    Beside -1e4 scores are not lost in f64, and differences are those of every operand. Beside a number near f32's least
    they are, so that the row is a mean: differences say only what v and the sinks get, and f32 gradients of all are
    those of the softmax and its gradient spelt in primitives.
    """
    attrs, sizes = PADDED[form]
    given = attention_operands(np.random.default_rng(4), rows=4, keys=5, **sizes)
    mask = np.zeros((2, 1, 4, 5))
    mask[1, :, :, 3:] = low
    mask[1, :, 2:] = low
    given[3] = mask
    full = {**PLAIN, "offset": 1, **attrs}
    lost = [0, 1, 5, 6] if np.isfinite(low) and low < -1e30 else []
    check_gradients("attention_stats", given, full, tolerance=1e-6 if low == -1e4 else 1e-7, skip=[3, *lost])
    if low == -1e4:
        return
    module = gradient_module("attention_stats", given, full)
    feeds = feeds_of(module, given, np.random.default_rng(1))
    exact = by_primitives(given, full, feeds["dy0"].astype(np.float64))
    narrow = run(module, feeds)
    for name, want in exact.items():
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(narrow[name], want, rtol=0, atol=3e-6 * scale, err_msg=name)


def by_primitives(given: list[Any], attrs: dict[str, Any], dy: np.ndarray) -> dict[str, np.ndarray]:
    """Gradients g0, g1, ... of the operands but the mask in f64, by the softmax itself instead of what it is rebuilt
    from; the gradient of the softmax is what a framework's automatic differentiation makes of it."""
    wide = [None if x is None else x.astype(np.float64) for x in [*given, None, None]]
    q, k, v, mask, sinks, q_rope, k_rope = wide[:7]
    assert q is not None and k is not None and v is not None
    capped, scores = attention_scores(q, k, mask, q_rope, k_rope, **attrs)
    heads, keys = q.shape[1], k.shape[2]
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1))], -1)
    top = scores.max(-1, keepdims=True)
    e = np.where(np.isneginf(top), 0.0, np.exp(scores - np.where(np.isneginf(top), 0.0, top)))
    p = e / np.maximum(e.sum(-1, keepdims=True), 1e-300)
    dp = np.zeros_like(p)
    dp[..., :keys] = dy @ repeated(v, heads).swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    found = {} if sinks is None else {"g4": ds[..., keys].sum((0, 2))}
    ds, p = ds[..., :keys], p[..., :keys]
    if attrs["softcap"] is not None:
        ds = ds * (1 - (capped / attrs["softcap"]) ** 2)
    ds = ds * attrs["scale"]

    def shared(x: np.ndarray, own: int) -> np.ndarray:
        return x.reshape(x.shape[0], own, -1, *x.shape[2:]).sum(2)

    found["g0"], found["g1"] = ds @ repeated(k, heads), shared(ds.swapaxes(-1, -2) @ q, k.shape[1])
    found["g2"] = shared(p.swapaxes(-1, -2) @ dy, k.shape[1])
    if q_rope is not None and k_rope is not None:
        found["g5"] = ds @ repeated(k_rope, heads)
        found["g6"] = shared(ds.swapaxes(-1, -2) @ q_rope, k_rope.shape[1])
    return found


def test_rows_that_attend_nothing_are_nan_where_the_output_is() -> None:
    given = attention_operands(np.random.default_rng(0), rows=2)
    attrs = {**PLAIN, "causal": True, "offset": -1, "empty_rows": "nan"}
    module = gradient_module("attention_stats", given, attrs)
    got = run(module, feeds_of(module, given, np.random.default_rng(1)))
    assert np.isnan(got["y0"][:, :, 0]).all() and np.isnan(got["g0"][:, :, 0]).all()
    assert not np.isnan(got["g0"][:, :, 1]).any()


@pytest.mark.parametrize("form", ["plain", "sinks", "grouped heads", "a rotary key for all heads", "everything"])
def test_statistics_are_the_largest_score_and_the_sum_beside_it(form: str) -> None:
    attrs, sizes = FORMS[form]
    q, k, _, mask, sinks, q_rope, k_rope = [*attention_operands(np.random.default_rng(3), **sizes), None, None][:7]
    assert q is not None and k is not None
    full = {**PLAIN, **attrs}
    top, total = OPS["attention_stats"].ref(q, k, k, mask, sinks, q_rope, k_rope, **full)[1:]
    for b, n, i in np.ndindex(top.shape):
        scores = [] if sinks is None else [float(sinks[n])]
        for j in range(k.shape[2]):
            place = i + full["offset"]
            far = full["window"] is not None and j <= place - full["window"]
            if (full["causal"] and j > place) or far or (mask is not None and not mask[b, 0, i, j]):
                continue
            s = q[b, n, i] @ k[b, n * k.shape[1] // q.shape[1], j]
            if q_rope is not None and k_rope is not None:
                s += q_rope[b, n, i] @ k_rope[b, n * k_rope.shape[1] // q.shape[1], j]
            s *= full["scale"]
            c = full["softcap"]
            scores.append(s if c is None else c * np.tanh(s / c))
        np.testing.assert_allclose(top[b, n, i], max(scores), rtol=1e-12)
        np.testing.assert_allclose(total[b, n, i], np.sum(np.exp(np.array(scores) - max(scores))), rtol=1e-12)


def test_packed_sequences_are_sequences_by_themselves() -> None:
    """Three of 2, 0 and 4 positions, two batches, grouped heads, a window."""
    q, k, v, *_ = attention_operands(np.random.default_rng(5), heads=4, own=2, rows=6, keys=6)
    attrs = {**PLAIN, "causal": True, "window": 3}
    whole = OPS["attention"].ref(q, k, v, cu_seqlens=np.array([0, 2, 2, 6]), **attrs)
    for at in (slice(0, 2), slice(2, 6)):
        own = OPS["attention"].ref(q[:, :, at], k[:, :, at], v[:, :, at], **attrs)
        np.testing.assert_allclose(whole[:, :, at], own, rtol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "keys", "attrs", "reason"),
    [
        (np.float32, 3, {}, "no positions"),
        (np.int32, 4, {}, "keys differ"),
        (np.int32, 3, {"offset": 1}, "keys differ"),
    ],
)
def test_packed_sequences_that_do_not_fit_are_refused(dtype: type, keys: int, attrs: Any, reason: str) -> None:
    given = attention_operands(np.random.default_rng(0), keys=keys, packed=(0, 3))
    given[7] = np.array([0, 3], dtype)
    with pytest.raises(ValueError, match=reason):
        gradient_module("attention_stats", given, {**PLAIN, **attrs})


def test_apart_or_concatenated_rotary_parts_are_one_attention() -> None:
    rng = np.random.default_rng(5)
    q, k, v, *_, q_rope, k_rope = attention_operands(rng, heads=4, own=4, width=4, rope=2)
    assert k_rope is not None
    whole_k = np.concatenate([k, np.repeat(k_rope, 4, axis=1)], -1)
    apart = OPS["attention"].ref(q, k, v, None, None, q_rope, k_rope, **PLAIN)
    whole = OPS["attention"].ref(np.concatenate([q, q_rope], -1), whole_k, v, **PLAIN)
    np.testing.assert_allclose(apart, whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("form", ["causal", "sinks", "grouped heads", "everything"])
def test_16_bit_gradients_are_within_rounding(form: str, dtype: DType) -> None:
    """Half a unit in the last place of each element, and of a few f32 roundings of the largest."""
    attrs, sizes = FORMS[form]
    given = attention_operands(np.random.default_rng(2), **sizes)
    attrs = {**PLAIN, **attrs}
    half_ulp = 2.0 ** -(11 if dtype is F16 else 8)
    held = [a.astype(dtype.carrier) if a is not None and a.dtype.kind == "f" else a for a in given]
    wide = [a.astype(np.float64) if a is not None and a.dtype.kind not in "b" else a for a in held]
    narrow = [a.astype(np.float32) if a is not None and a.dtype.kind not in "b" else a for a in held]
    y, *stats = OPS["attention_stats"].ref(*wide, **attrs)
    dy = np.random.default_rng(3).standard_normal(y.shape).astype(dtype.carrier)
    y = y.astype(dtype.carrier)
    rest = [3, 4, 5, 6][: len(held) - 3]

    def gradients(xs: list[Any], kind: type) -> tuple[np.ndarray, ...]:
        found = OPS["attention_grad"].ref(
            *xs[:3],
            y.astype(kind),
            *(x.astype(np.float32).astype(kind) for x in stats),
            dy.astype(kind),
            *(xs[i] for i in rest),
            **attrs,
        )
        return tuple(found)

    for got, exact in zip(gradients(narrow, np.float32), gradients(wide, np.float64), strict=True):
        rounded = got.astype(dtype.carrier).astype(np.float64)
        slack = half_ulp * np.abs(exact) + 2.0**-20 * np.abs(exact).max(initial=0.0)
        assert (np.abs(rounded - exact) <= slack).all()


MASKS = {"[B, 1, S, T]": (2, 1, 3, 4), "[S, T]": (3, 4), "[N, 1, T]": (2, 1, 4), "[1, 1]": (1, 1), "all": (2, 2, 3, 4)}


@pytest.mark.parametrize("shape", MASKS)
@pytest.mark.parametrize("form", ["plain", "causal", "softcap", "sinks", "everything"])
def test_a_mask_that_is_added_has_a_gradient_too(form: str, shape: str) -> None:
    """A learned bias, broadcast in each way; keys that it rules out (-inf) get exact zeros."""
    attrs, sizes = FORMS[form]
    given = attention_operands(np.random.default_rng(6), **{**sizes, "heads": 2, "own": 2, "rows": 3, "mask": ""})
    given[3] = np.random.default_rng(7).standard_normal(MASKS[shape])
    check_gradients("attention_stats", given, {**PLAIN, **attrs})


def test_a_mask_of_minus_infinity_gets_zeros() -> None:
    given = attention_operands(np.random.default_rng(0))
    given[3] = np.where(np.eye(3, 4, dtype=bool), -np.inf, 0.5)
    module = gradient_module("attention_stats", given, PLAIN)
    got = run(module, feeds_of(module, given, np.random.default_rng(1)))["g3"]
    assert not got[np.eye(3, 4, dtype=bool)].any() and got[~np.eye(3, 4, dtype=bool)].all()


def test_what_has_no_gradient_is_said() -> None:
    from moec.ops.tape import NoGradient

    with pytest.raises(NoGradient, match="differentiated as attention_stats"):
        gradient_module("attention", attention_operands(np.random.default_rng(0)), PLAIN)
    given = attention_operands(np.random.default_rng(0), mask="bool")
    module = gradient_module("attention_stats", given, PLAIN)
    types = [v.type for v in module.main.inputs if v.name != "dy0"]
    rows = [types[0], *types[1:3], types[0].with_shape((*types[0].dims[:3], 2))]
    with pytest.raises(ValueError, match="a mask of bool is not added"):
        stats = [rows[0].with_shape(rows[0].dims[:3])] * 2
        OPS["attention_mask_grad"].infer([*rows, *stats, rows[3], types[3]], PLAIN)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((2, 3, 4, 2), "k_rope is f32"), ((2, 1, 5, 2), "k_rope is f32"), (None, "given together")],
)
def test_rotary_parts_that_do_not_fit_are_refused(shape: tuple[int, ...] | None, reason: str) -> None:
    given = attention_operands(np.random.default_rng(0), rope=2)
    given[6] = None if shape is None else np.zeros(shape)
    with pytest.raises(ValueError, match=reason):
        gradient_module("attention_stats", given, PLAIN)
