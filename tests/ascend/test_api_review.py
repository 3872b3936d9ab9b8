"""The review table: what moec emits of the AscendC API is what the vendor documents for Ascend 910B."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from ascend_run import TEMPLATES
from command import moec
from family_cases import text

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.cpp import HELPERS
from moec.codegen.emit import emit_kernel
from moec.codegen.instructions import INSTRUCTIONS, InstrSpec
from moec.codegen.kernel_ir import Instr, statements
from moec.codegen.lower import lower_module
from moec.codegen.project import environment
from moec.ir.text import parse_module
from moec.targets.ascend.api import AS_DOCUMENTED, called, documented, documented_text, functions, review

CAPS = Capacities(aic=2, aiv=2)


def test_every_instruction_is_reviewed_once_and_is_as_documented() -> None:
    named = [row.instruction for row in documented() if row.instruction]
    assert sorted(named) == sorted(INSTRUCTIONS)
    assert {r.documented.form: r.verdict for r in review() if r.verdict != AS_DOCUMENTED} == {}
    assert all(row.source for row in documented())


def test_the_table_says_what_dtypes_allow() -> None:
    texts = {row.instruction: documented_text(row) for row in documented()}
    assert texts["Div"] == "f16 f32"
    assert texts["Compare"] == "u8/f16/f16 u8/f32/f32 i8/f16/f16 i8/f32/f32; u8/i32/i32 i8/i32/i32 mode EQ"
    assert texts["ShiftLeft"] == "i16 u16 scalar 0 to 16; i32 u32 scalar 0 to 32"


def test_the_command_shows_it() -> None:
    shown = moec("instructions", "--review", "--json")
    rows = json.loads(shown.stdout)
    assert shown.returncode == 0 and len(rows) == len(documented())
    assert {r["verdict"] for r in rows} == {AS_DOCUMENTED}
    assert "documented for 910B" in moec("instructions", "--review").stdout


def changed(name: str, **fields: object) -> InstrSpec:
    return replace(INSTRUCTIONS[name], **fields)  # type: ignore[arg-type]


def operand(name: str, place: int, **fields: object) -> InstrSpec:
    operands = list(INSTRUCTIONS[name].operands)
    operands[place] = replace(operands[place], **fields)  # type: ignore[arg-type]
    return changed(name, operands=tuple(operands))


def parameter(name: str, param: str, **fields: object) -> InstrSpec:
    params = INSTRUCTIONS[name].params
    return changed(name, params=tuple(replace(p, **fields) if p.name == param else p for p in params))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "difference"),
    [
        (changed("Sub", call="Sub({dst}, {src1}, {src0}, {count})"), "written Sub(dst, src1, src0, count), documented"),
        (changed("WholeReduceSum", call=INSTRUCTIONS["BlockReduceSum"].call), "the call is written BlockReduceSum"),
        (
            changed("Mmad", call=INSTRUCTIONS["Mmad"].call.replace("{m}, {n}", "{n}, {m}")),
            "MmadParams{n, m, k, unitFlag, false, cmatrixInitVal}",
        ),
        (operand("Exp", 0, dtypes=("f16", "f32", "bf16")), ""),  # the source has no bf16: nothing new comes of it
        (
            changed("Relu", operands=tuple(replace(o, dtypes=("i16",)) for o in INSTRUCTIONS["Relu"].operands)),
            "i16/i16",
        ),
        (changed("Compare", only={}), "u8/i32/i32 with mode LT, GT, LE, GE, NE is not documented"),
        (
            changed("Cast", only={**INSTRUCTIONS["Cast"].only, ("i32", "i64"): {"mode": ["RoundMode::CAST_RINT"]}}),
            "RINT",
        ),
        (changed("LoadData", only={}), "f32/f32 with ifTranspose true is not documented"),
        (
            changed("ShiftLeft", only={("i16", "i16"): {"scalar": range(18)}}),
            "i16/i16 with scalar 17 is not documented",
        ),
        (parameter("MrgSort", "length2", hi=0), "length2 up to 65535, documented up to 4095"),
        (operand("Mmad", 0, align=0), "c at multiples of 64 bytes, documented 1024"),
    ],
)
def test_a_call_that_differs_is_named(spec: InstrSpec, difference: str) -> None:
    (found,) = (r for r in review([spec]) if r.documented.instruction)
    assert bool(found.differences) == bool(difference)
    assert difference in found.verdict


def test_kernels_of_every_family_call_nothing_else() -> None:
    """Functions and types in the sources, and what the builder let through, against the table."""
    program = lower_module(parse_module(text()), CAPS, {})
    rows = {row.instruction: row for row in documented()}
    templates = environment(TEMPLATES)
    seen: set[str] = set()
    for kernel in program.kernels:
        seen |= called(emit_kernel(kernel, templates).text)
        for s in statements(kernel.body):
            if isinstance(s, Instr) and s.operands:
                assert tuple(o.dtype for o in s.operands) in rows[s.op].allowed, (kernel.name, s)
    assert seen - functions() - set(HELPERS) == set()
    assert {"DataCopyPad", "Mmad", "Fixpipe", "Cast", "Sort32", "SyncAll", "SetFlag"} <= seen


def test_calls_are_found_in_a_source() -> None:
    lines = ["// Div(a, b)", "Foo<float>(x, MinI(a, b));", "LocalTensor<half> t = m.GetWithOffset<half>(1, 0);", "}"]
    source = "\n".join(["void K() {", *lines])
    assert called(source) == {"Foo", "MinI", "GetWithOffset"}


def build(emit: Callable[[KernelBuilder], None]) -> None:
    emit(KernelBuilder("k", "aiv", CAPS))


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (
            lambda k: k.v("Exp", k.ub("a", "i32", 64)[0], k.ub("b", "i32", 64)[0], count=64),
            "dst is i32, must be one of",
        ),
        (lambda k: k.v("Relu", k.ub("a", "f32", 64)[0], k.ub("b", "f16", 64)[0], count=64), "must have one dtype"),
        (lambda k: k.cast(k.ub("a", "i64", 64)[0], k.ub("b", "i32", 64)[0], 64, "RINT"), "which i64 i32 do not take"),
        (lambda k: k.cast(k.ub("a", "i8", 64)[0], k.ub("b", "f32", 64)[0], 64), "Cast has no f32 to i8"),
        (
            lambda k: k.v("ShiftLeft", k.ub("a", "i32", 64)[0], k.ub("b", "i32", 64)[0], scalar=33, count=64),
            "scalar is 33",
        ),
        (
            lambda k: k.v(
                "CompareScalar", k.ub("a", "u8", 32)[0], k.ub("b", "i32", 64)[0], scalar=0, mode="CMPMODE::LT", count=64
            ),
            "mode is CMPMODE::LT, which u8 i32 do not take",
        ),
    ],
)
def test_the_builder_refuses_what_no_call_takes(emit: Callable[[KernelBuilder], None], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        build(emit)


def test_names_that_a_source_uses_otherwise_get_a_number() -> None:
    k = KernelBuilder("k", "aiv", CAPS)
    names = [k.ub(name, "f32", 8).name for name in ("half", "half", "pipe", "plain", "plain")]
    assert names == ["half2", "half3", "pipe2", "plain", "plain2"]
    assert k.gm("int", "f32", (8,), "in").name == "int2" and k.let("rsvdCnt", 1).name == "rsvdCnt2"


@pytest.mark.parametrize(
    ("source", "to", "mode"),
    [
        ("i64", "i32", "NONE"),
        ("f16", "i32", "RINT"),
        ("f32", "i64", "RINT"),
        ("u8", "f16", "NONE"),
        ("i32", "f32", "RINT"),
    ],
)
def test_casts_default_to_a_documented_mode(source: str, to: str, mode: str) -> None:
    k = KernelBuilder("k", "aiv", CAPS)
    k.cast(k.ub("a", to, 64)[0], k.ub("b", source, 64)[0], 64)
    (cast,) = (s for s in statements(k.draft().body) if isinstance(s, Instr))
    assert dict(cast.params)["mode"] == f"RoundMode::CAST_{mode}"
