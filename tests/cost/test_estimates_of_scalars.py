"""The target answers for scalars as it does for one element, and for ops some of whose results are empty."""

from __future__ import annotations

from typing import Any

import pytest

from moec.ir.types import BF16, BOOL, F32, I32, I64, DType, TensorType
from moec.target import Target
from moec.targets.ascend import load_target

FORMS: dict[str, tuple[list[DType], dict[str, Any]]] = {
    **{f"{op} of {d}": ([d], {}) for op in ("exp", "neg", "sigmoid", "sqrt") for d in (F32, BF16)},
    **{f"{op} of {d}": ([d, d], {}) for op in ("add", "mul", "div", "maximum") for d in (F32, BF16)},
    **{f"cast of {a} to {b}": ([a], {"to": b}) for a in (F32, BF16, I32, I64, BOOL) for b in (F32, BF16) if a is not b},
    "select": ([BOOL, F32, F32], {}),
}


@pytest.fixture(scope="module")
def machine() -> Target:
    return load_target("ascend910b1")


@pytest.mark.parametrize("name", FORMS)
def test_a_scalar_is_one_element(machine: Target, name: str) -> None:
    dtypes, attrs = FORMS[name]
    scalar, one = (machine.estimate(name.split()[0], [TensorType(d, s) for d in dtypes], attrs, {}) for s in ((), (1,)))
    assert scalar.us == one.us > 0


def test_a_gradient_of_attention_without_sinks_and_rotary_part_is_answered(machine: Target) -> None:
    x = TensorType(BF16, (1, 2, 32, 16))
    attrs = {"scale": 1.0, "causal": True, "offset": 0, "window": None, "softcap": None, "empty_rows": "zero"}
    time = machine.estimate("attention_grad", [x, x, x, x, *[TensorType(F32, (1, 2, 32))] * 2, x], attrs, {})
    assert time.us > time.floor_us > 0
