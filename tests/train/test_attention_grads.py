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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_the_differences(form: str, seed: int) -> None:
    attrs, sizes = FORMS[form]
    given = attention_operands(np.random.default_rng(seed), **sizes)
    check_gradients("attention_lse", given, {**PLAIN, **attrs}, seed, skip=[3])


def test_rows_that_attend_nothing_get_and_give_exact_zeros() -> None:
    """Query 0 and key 3 of a causal window that starts below all keys, and a masked row."""
    given = attention_operands(np.random.default_rng(0), rows=4, keys=6)
    mask = np.ones((2, 1, 4, 6), bool)
    mask[1, :, 2] = False
    given[3] = mask
    found = check_gradients("attention_lse", given, {**PLAIN, "causal": True, "window": 2, "offset": -1}, skip=[3])
    dq, dk, dv = (found[f"g{i}"] for i in range(3))
    assert not dq[:, :, 0].any() and not dq[1, :, 2].any() and dq[0, :, 2].any()
    assert not dk[:, :, 3:].any() and not dv[:, :, 3:].any() and dv[:, :, 2].any()


def test_rows_that_attend_nothing_are_nan_where_the_output_is() -> None:
    given = attention_operands(np.random.default_rng(0), rows=2)
    attrs = {**PLAIN, "causal": True, "offset": -1, "empty_rows": "nan"}
    module = gradient_module("attention_lse", given, attrs)
    got = run(module, feeds_of(module, given, np.random.default_rng(1)))
    assert np.isnan(got["y0"][:, :, 0]).all() and np.isnan(got["g0"][:, :, 0]).all()
    assert not np.isnan(got["g0"][:, :, 1]).any()


@pytest.mark.parametrize("form", ["plain", "sinks", "grouped heads", "a rotary key for all heads", "everything"])
def test_lse_is_the_logarithm_of_the_sum(form: str) -> None:
    attrs, sizes = FORMS[form]
    q, k, _, mask, sinks, q_rope, k_rope = [*attention_operands(np.random.default_rng(3), **sizes), None, None][:7]
    assert q is not None and k is not None
    full = {**PLAIN, **attrs}
    lse = OPS["attention_lse"].ref(q, k, k, mask, sinks, q_rope, k_rope, **full)[1]
    for b, n, i in np.ndindex(lse.shape):
        total = 0.0 if sinks is None else float(np.exp(sinks[n]))
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
            total += np.exp(s if c is None else c * np.tanh(s / c))
        np.testing.assert_allclose(lse[b, n, i], np.log(total), rtol=1e-12)


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
    y, lse = OPS["attention_lse"].ref(*wide, **attrs)
    dy = np.random.default_rng(3).standard_normal(y.shape).astype(dtype.carrier)
    y = y.astype(dtype.carrier)
    rest = [3, 4, 5, 6][: len(held) - 3]

    def gradients(xs: list[Any], kind: type) -> tuple[np.ndarray, ...]:
        found = OPS["attention_grad"].ref(
            *xs[:3],
            y.astype(kind),
            lse.astype(np.float32).astype(kind),
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
    check_gradients("attention_lse", given, {**PLAIN, **attrs})


def test_a_mask_of_minus_infinity_gets_zeros() -> None:
    given = attention_operands(np.random.default_rng(0))
    given[3] = np.where(np.eye(3, 4, dtype=bool), -np.inf, 0.5)
    module = gradient_module("attention_lse", given, PLAIN)
    got = run(module, feeds_of(module, given, np.random.default_rng(1)))["g3"]
    assert not got[np.eye(3, 4, dtype=bool)].any() and got[~np.eye(3, 4, dtype=bool)].all()


def test_what_has_no_gradient_is_said() -> None:
    from moec.ops.tape import NoGradient

    with pytest.raises(NoGradient, match="differentiated as attention_lse"):
        gradient_module("attention", attention_operands(np.random.default_rng(0)), PLAIN)
    given = attention_operands(np.random.default_rng(0), mask="bool")
    module = gradient_module("attention_lse", given, PLAIN)
    types = [v.type for v in module.main.inputs if v.name != "dy0"]
    rows = [types[0], *types[1:3], types[0].with_shape((*types[0].dims[:3], 2))]
    with pytest.raises(ValueError, match="a mask of bool is not added"):
        OPS["attention_mask_grad"].infer([*rows, rows[0].with_shape(rows[0].dims[:3]), rows[3], types[3]], PLAIN)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((2, 3, 4, 2), "k_rope is f32"), ((2, 1, 5, 2), "k_rope is f32"), (None, "given together")],
)
def test_rotary_parts_that_do_not_fit_are_refused(shape: tuple[int, ...] | None, reason: str) -> None:
    given = attention_operands(np.random.default_rng(0), rope=2)
    given[6] = None if shape is None else np.zeros(shape)
    with pytest.raises(ValueError, match=reason):
        gradient_module("attention_lse", given, PLAIN)
