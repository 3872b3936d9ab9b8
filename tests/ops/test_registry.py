"""The op registry: every declaration is complete, and a wrong one is refused."""

from __future__ import annotations

import pytest

from moec.ir.symbol import sym
from moec.ir.types import BF16, F32, I64, TensorType
from moec.ops import OPS, op, opdef
from moec.ops.registry import COSTS, OpDef
from moec.ops.signature import parse_signature, signature_text

T = sym("T")


@pytest.mark.parametrize("name", OPS)
def test_each_op_says_everything(name: str) -> None:
    d = OPS[name]
    assert len(d.doc) >= 2 and d.cost in COSTS and callable(d.ref)
    assert parse_signature(signature_text(d.signature)) == d.signature


def test_a_signature_unifies_symbolic_dims() -> None:
    types = [TensorType(F32, (2 * T, 16)), TensorType(F32, (4, 12, 16)), TensorType(I64, (4,))]
    assert OPS["grouped_matmul"].infer(types, {"transpose_weight": True}) == [TensorType(F32, (2 * T, 12))]


def test_a_mismatch_says_which_operand_and_what_was_expected() -> None:
    with pytest.raises(ValueError, match=r"'weight' is f32\[8\], expected \[D\] with \*B = \[.*T.*\], D = 16"):
        OPS["rms_norm"].infer([TensorType(F32, (T, 16)), TensorType(F32, (8,))], {"eps": 1e-6})


def test_attributes_are_checked_all_at_once() -> None:
    with pytest.raises(ValueError) as info:
        OPS["topk"].complete({"k": 2, "axs": 0, "largest": 1})
    text = str(info.value)
    for part in (
        "unknown attribute 'axs' did you mean 'axis'?",
        "'axis' is missing",
        "'sorted' is missing",
        "must be bool",
    ):
        assert part in text


def test_an_unknown_op_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        opdef("sofmax")


def test_operands_of_different_dtypes_do_not_mix() -> None:
    with pytest.raises(ValueError, match="different dtypes: f32, bf16; cast one"):
        OPS["add"].infer([TensorType(F32, (T,)), TensorType(BF16, (T,))], {})


def test_an_incomplete_declaration_is_refused() -> None:
    with pytest.raises(TypeError, match="op lonely: declare doc, dtype_rule, ref"):
        OpDef(parse_signature("lonely(x: any) -> any"), type("Lonely", (), {}))


def test_a_second_declaration_is_refused() -> None:
    body = {"__doc__": "twice", "dtype": "x", "ref": staticmethod(lambda x: x), "cost": "vector"}
    with pytest.raises(TypeError, match="declared twice"):
        op("add(x: any) -> any")(type("Add", (), body))
