"""The text form of programs is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

import moec
from moec.codegen.capacities import Capacities
from moec.codegen.lower import lower_module
from moec.codegen.operator_call import Integers, Number, OperatorCall, View, Views
from moec.codegen.program import Copy, Launch, Memset, Output, Program, Tensor
from moec.codegen.program_text import parse_program, print_program
from moec.diagnostics import Refusal
from moec.ir.symbol import ceildiv, sym

LAYER = Path(__file__).resolve().parents[2] / "examples" / "tiny_moe.moe"


def test_a_block_round_trips() -> None:
    program = lower_module(moec.compile(LAYER).module, Capacities(), {})
    text = print_program(program)
    assert parse_program(text) == program
    assert print_program(parse_program(text)) == text


def test_every_kind_of_line() -> None:
    t = sym("T")
    program = Program(
        "odd",
        {"T": (0, 64)},
        (),
        (Tensor("a", "f32", (), "input", 'a "quoted" [name]'), Tensor("b", "i32", (ceildiv(t, 8), 2 * t + 1), "temp")),
        (Output("y = (1)", "b", (t,)),),
        (
            Memset("b"),
            Copy("b", "parked", ("swap_in (x:1)",)),
            OperatorCall(
                "aclnnMany",
                (
                    ("x", View("a", "f32", (), ())),
                    ("list", Views((View("b", "i32", (t, ceildiv(t, 8)), (1, t)), View("b", "bool", (2,))))),
                    ("none", None),
                    ("layout", "BNSD"),
                    ("sizes", Integers((1, -1, 2 * t))),
                    ("dim", Number("int64_t", -1)),
                    ("rows", Number("int64_t", t)),
                    ("eps", Number("double", 1e-6)),
                    ("padded", Number("bool", False)),
                    ("dtype", Number("aclDataType", "ACL_INT64")),
                ),
                ("out", "other"),
                "aclnnop/aclnn_many.h",
                "8.0",
                ("swiglu (layer.moe:3)",),
            ),
            Launch("k", (("x", "a"), ("y", "b")), (("n", ceildiv(t, 3) * 2), ("m", t)), ("one; two", "three")),
        ),
        {"aic": 1, "aiv": 2},
    )
    assert parse_program(print_program(program)) == program


def test_an_unreadable_line_is_named() -> None:
    with pytest.raises(Refusal) as caught:
        parse_program("program p aic=1 aiv=1\ntensor broken\n", "p.txt")
    assert caught.value.problems[0].where.line == 2
    with pytest.raises(Refusal) as caught:
        parse_program("program p aic=1 aiv=1\nlibrary aclnnCast(x = ?) -> y\n", "p.txt")
    assert caught.value.problems[0].where.line == 2
