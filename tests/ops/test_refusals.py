"""Attributes that no operand makes meaningful are refused when a node is built, not when it runs."""

from __future__ import annotations

from typing import Any

import pytest

from moec.ir.graph import Value
from moec.ir.types import F32, I64, TensorType
from moec.ops.build import make_node

X = Value(TensorType(F32, (2, 3)), None, 0, "x")
I = Value(TensorType(I64, (2, 3)), None, 1, "i")  # noqa: E741


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "message"),
    [
        ("softmax", [X], {"axis": 2}, "axis 2 is outside rank 2"),
        ("log_softmax", [X], {"axis": -1}, "axis -1 is outside rank 2"),
        ("argsort", [X], {"axis": 2, "descending": True}, "axis 2 is outside rank 2"),
        ("argmax", [X], {"axis": 2, "keepdims": True, "last": False}, "axis 2 is outside rank 2"),
        ("gather_elements", [X, I], {"axis": 2}, "axis 2 is outside rank 2"),
        ("scatter_elements", [X, I, X], {"axis": 2, "reduction": "add"}, "axis 2 is outside rank 2"),
        ("scatter_elements", [X, I, X], {"axis": 1, "reduction": "sum"}, "reduction 'sum' is none of none, add"),
        ("gelu", [X], {"approximate": "erf"}, "approximate 'erf' is none of none, tanh"),
        ("pad", [X], {"before": (-5, 0), "after": (0, 0), "value": 0.0}, r"f32\[-3, 3\], and a size is not negative"),
        ("one_hot", [I], {"depth": -2, "axis": 0, "dtype": F32}, "a size is not negative"),
        ("histogram", [I], {"bins": -1}, "a size is not negative"),
        ("iota", [], {"size": -1, "dtype": F32}, "a size is not negative"),
    ],
)
def test_refused_when_built(op: str, operands: list[Value], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_node(op, operands, attrs)
