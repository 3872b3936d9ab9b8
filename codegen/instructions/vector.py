"""Vector arithmetic, casts, comparisons, reductions (CANN asc-devkit docs; dtypes are those of NPU arch 2201).

Names without suffix are the count form, ``Op(dst, src..., count)``. ``.rep`` is the mask-and-repeat form, whose block
strides and repeat strides count 32-byte blocks; repeat stride 0 reads (or accumulates into) the same rows each repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moec.codegen.instructions.spec import Extents, InstrSpec, Operand, Param, Resolved, Work, declare, repeats_of

UB = ("UB",)
F = ("f16", "f32")
FI = ("f16", "f32", "i16", "i32")
COUNT = (Param("count", "i32"),)


def count_extents(*names: str) -> Callable[[Resolved], Extents]:
    """Each operand holds ``count`` elements."""

    def extents(r: Resolved) -> Extents:
        return {name: r.n("count") * r.size(name) for name in names}

    return extents


def count_work(r: Resolved, path: str) -> Work:
    """Repeats of the widest operand."""
    widest = max(r.size(name) for name in r.dtypes)
    nbytes = r.n("count") * widest
    return Work(
        "vector", "", nbytes, r.dtypes.get("src0", r.dtypes.get("src", r.dtypes["dst"])), repeats=repeats_of(nbytes)
    )


def _binary(name: str, dtypes: tuple[str, ...], dst: str = "w") -> None:
    declare(
        InstrSpec(
            name,
            f"{name}({{dst}}, {{src0}}, {{src1}}, {{count}})",
            "V",
            (Operand("dst", dst, UB, dtypes), Operand("src0", "r", UB, dtypes), Operand("src1", "r", UB, dtypes)),
            COUNT,
            count_extents("dst", "src0", "src1"),
            count_work,
            same_dtype=("dst", "src0", "src1"),
        )
    )


def rep_span(repeat: int, stride: int, block: int, mask: int, size: int) -> int:
    """Bytes from first to last touched: ``repeat`` rows of ``mask`` elements in blocks ``block`` apart."""
    blocks = -(-mask * size // 32)
    full = (repeat - 1) * stride * 32
    last = mask * size - (blocks - 1) * 32
    return full + (blocks - 1) * block * 32 + last


_STRIDES2 = (
    Param("dstBlkStride", "u8"),
    Param("src0BlkStride", "u8"),
    Param("src1BlkStride", "u8"),
    Param("dstRepStride", "u8"),
    Param("src0RepStride", "u8"),
    Param("src1RepStride", "u8"),
)
_MASK = (Param("mask", "u64", hi=128), Param("repeatTime", "u8", hi=255))


def _rep2_extents(r: Resolved) -> Extents:
    return {
        name: rep_span(r.n("repeatTime"), r.n(f"{name}RepStride"), r.n(f"{name}BlkStride"), r.n("mask"), r.size(name))
        for name in ("dst", "src0", "src1")
    }


def rep_work(r: Resolved, path: str) -> Work:
    widest = max(r.size(name) for name in r.dtypes)
    nbytes = r.n("repeatTime") * r.n("mask") * widest
    return Work(
        "vector", "", nbytes, r.dtypes.get("src0", r.dtypes.get("src", r.dtypes["dst"])), repeats=r.n("repeatTime")
    )


def _binary_rep(name: str, dtypes: tuple[str, ...]) -> None:
    strides = ", ".join(f"{{{p.name}}}" for p in _STRIDES2)
    declare(
        InstrSpec(
            f"{name}.rep",
            f"{name}({{dst}}, {{src0}}, {{src1}}, {{mask}}, {{repeatTime}}, BinaryRepeatParams{{{{{strides}}}}})",
            "V",
            (Operand("dst", "w", UB, dtypes), Operand("src0", "r", UB, dtypes), Operand("src1", "r", UB, dtypes)),
            _MASK + _STRIDES2,
            _rep2_extents,
            rep_work,
            same_dtype=("dst", "src0", "src1"),
        )
    )


for _name in ("Add", "Sub", "Mul", "Max", "Min"):
    _binary(_name, FI)
    _binary_rep(_name, FI)
_binary("Div", F)
_binary_rep("Div", F)
for _name in ("And", "Or"):
    _binary(_name, ("i16", "u16"))
_binary("MulAddDst", F, dst="rw")


def _scalar(name: str, dtypes: tuple[str, ...], dst: str = "w", most: Mapping[str, int] | None = None) -> None:
    """``most``: the largest scalar of a dtype, which cannot be negative then."""
    declare(
        InstrSpec(
            name,
            f"{name}({{dst}}, {{src}}, {{scalar}}, {{count}})",
            "V",
            (Operand("dst", dst, UB, dtypes), Operand("src", "r", UB, dtypes)),
            (Param("scalar", "elem"), *COUNT),
            count_extents("dst", "src"),
            count_work,
            same_dtype=("dst", "src"),
            only={(d, d): {"scalar": range(top + 1)} for d, top in (most or {}).items()},
        )
    )


for _name in ("Adds", "Muls", "Maxs", "Mins"):
    _scalar(_name, FI)
_scalar("LeakyRelu", F)
_scalar("Axpy", F, dst="rw")
for _name in ("ShiftLeft", "ShiftRight"):
    _scalar(_name, ("i16", "i32", "u16", "u32"), most={"i16": 16, "u16": 16, "i32": 32, "u32": 32})

_STRIDES1 = (
    Param("dstBlkStride", "u16"),
    Param("srcBlkStride", "u16"),
    Param("dstRepStride", "u8"),
    Param("srcRepStride", "u8"),
)


def _rep1_extents(r: Resolved) -> Extents:
    return {
        name: rep_span(r.n("repeatTime"), r.n(f"{name}RepStride"), r.n(f"{name}BlkStride"), r.n("mask"), r.size(name))
        for name in ("dst", "src")
    }


def _scalar_rep(name: str, dtypes: tuple[str, ...]) -> None:
    strides = ", ".join(f"{{{p.name}}}" for p in _STRIDES1)
    declare(
        InstrSpec(
            f"{name}.rep",
            f"{name}({{dst}}, {{src}}, {{scalar}}, {{mask}}, {{repeatTime}}, UnaryRepeatParams{{{{{strides}}}}})",
            "V",
            (Operand("dst", "w", UB, dtypes), Operand("src", "r", UB, dtypes)),
            (Param("scalar", "elem"), *_MASK, *_STRIDES1),
            _rep1_extents,
            rep_work,
            same_dtype=("dst", "src"),
        )
    )


for _name in ("Adds", "Muls", "Maxs", "Mins"):
    _scalar_rep(_name, FI)


def _unary(name: str, dtypes: tuple[str, ...]) -> None:
    declare(
        InstrSpec(
            name,
            f"{name}({{dst}}, {{src}}, {{count}})",
            "V",
            (Operand("dst", "w", UB, dtypes), Operand("src", "r", UB, dtypes)),
            COUNT,
            count_extents("dst", "src"),
            count_work,
            same_dtype=("dst", "src"),
        )
    )


for _name in ("Exp", "Ln", "Sqrt", "Rsqrt", "Reciprocal", "Abs"):
    _unary(_name, F)
_unary("Relu", (*F, "i32"))
_unary("Not", ("i16", "u16"))

ROUND = tuple(f"RoundMode::CAST_{m}" for m in ("NONE", "RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD"))
_NONE, _ROUND = ("NONE",), ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC")
CASTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("u8", "f16"): _NONE,
    ("i8", "f16"): _NONE,
    ("i16", "f16"): (*_ROUND, "NONE"),
    ("i16", "f32"): _NONE,
    ("f16", "u8"): (*_ROUND, "NONE"),
    ("f16", "i8"): (*_ROUND, "NONE"),
    ("f16", "i16"): _ROUND,
    ("f16", "i32"): _ROUND,
    ("f16", "f32"): _NONE,
    ("bf16", "i32"): _ROUND,
    ("bf16", "f32"): _NONE,
    ("i32", "i16"): _NONE,
    ("i32", "f32"): (*_ROUND, "NONE"),
    ("i32", "i64"): _NONE,
    ("f32", "i16"): _ROUND,
    ("f32", "f16"): (*_ROUND, "ODD", "NONE"),
    ("f32", "bf16"): _ROUND,
    ("f32", "i32"): _ROUND,
    ("f32", "f32"): _ROUND,
    ("f32", "i64"): _ROUND,
    ("i64", "i32"): _NONE,
    ("i64", "f32"): _ROUND,
}
"""Round modes of each pair (source, destination)."""
_HELD = tuple(sorted({dtype for pair in CASTS for dtype in pair}))
declare(
    InstrSpec(
        "Cast",
        "Cast({dst}, {src}, {mode}, {count})",
        "V",
        (Operand("dst", "w", UB, _HELD), Operand("src", "r", UB, _HELD)),
        (Param("mode", "enum", ROUND), *COUNT),
        count_extents("dst", "src"),
        count_work,
        "rounds as the pair of dtypes allows; NONE where nothing is lost",
        only={(dst, src): {"mode": [f"RoundMode::CAST_{m}" for m in modes]} for (src, dst), modes in CASTS.items()},
        closed=True,
    )
)


def _compare_extents(r: Resolved) -> Extents:
    out = {"dst": -(-r.n("count") // 8), "src0": r.n("count") * r.size("src0")}
    if "src1" in r.dtypes:
        out["src1"] = r.n("count") * r.size("src1")
    return out


CMP = tuple(f"CMPMODE::{m}" for m in ("LT", "GT", "EQ", "LE", "GE", "NE"))
_EQUAL = {"mode": ("CMPMODE::EQ",)}
declare(
    InstrSpec(
        "Compare",
        "Compare({dst}, {src0}, {src1}, {mode}, {count})",
        "V",
        (
            Operand("dst", "w", UB, ("u8",)),
            Operand("src0", "r", UB, (*F, "i32")),
            Operand("src1", "r", UB, (*F, "i32")),
        ),
        (Param("mode", "enum", CMP), *COUNT),
        _compare_extents,
        count_work,
        "one bit per element; count * itemsize a multiple of 256 bytes; i32 only EQ",
        same_dtype=("src0", "src1"),
        only={("u8", "i32", "i32"): _EQUAL},
    )
)
declare(
    InstrSpec(
        "CompareScalar",
        "CompareScalar({dst}, {src0}, {scalar}, {mode}, {count})",
        "V",
        (Operand("dst", "w", UB, ("u8",)), Operand("src0", "r", UB, (*F, "i32"))),
        (Param("scalar", "elem:src0"), Param("mode", "enum", CMP), *COUNT),
        _compare_extents,
        count_work,
        "one bit per element; count * itemsize a multiple of 256 bytes; i32 only EQ",
        only={("u8", "i32"): _EQUAL},
    )
)


def _select_extents(r: Resolved) -> Extents:
    out = {"dst": r.n("count") * r.size("dst"), "mask": -(-r.n("count") // 8), "src0": r.n("count") * r.size("src0")}
    if "src1" in r.dtypes:
        out["src1"] = r.n("count") * r.size("src1")
    return out


def _select_work(r: Resolved, path: str) -> Work:
    nbytes = r.n("count") * r.size("dst")
    return Work("vector", "", nbytes, r.dtypes["dst"], repeats=repeats_of(nbytes))


declare(
    InstrSpec(
        "Select",
        "Select({dst}, {mask}, {src0}, {src1}, SELMODE::VSEL_TENSOR_TENSOR_MODE, {count})",
        "V",
        (
            Operand("dst", "w", UB, F),
            Operand("mask", "r", UB, ("u8",)),
            Operand("src0", "r", UB, F),
            Operand("src1", "r", UB, F),
        ),
        (Param("count", "u32"),),
        _select_extents,
        _select_work,
        "bit ? src0 : src1",
        same_dtype=("dst", "src0", "src1"),
    )
)
declare(
    InstrSpec(
        "SelectScalar",
        "Select({dst}, {mask}, {src0}, {scalar}, SELMODE::VSEL_TENSOR_SCALAR_MODE, {count})",
        "V",
        (Operand("dst", "w", UB, F), Operand("mask", "r", UB, ("u8",)), Operand("src0", "r", UB, F)),
        (Param("scalar", "elem"), Param("count", "u32")),
        _select_extents,
        _select_work,
        "bit ? src0 : scalar",
        same_dtype=("dst", "src0"),
    )
)
