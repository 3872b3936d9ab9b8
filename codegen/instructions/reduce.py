"""Reductions on the vector unit: whole repeats, 32-byte blocks, and the software form over any count (CANN asc-devkit
docs)."""

from __future__ import annotations

from collections.abc import Callable

from moec.codegen.instructions.spec import Extents, InstrSpec, Operand, Param, Resolved, Work, declare, repeats_of
from moec.codegen.instructions.vector import COUNT, UB, F, rep_span, rep_work


def _whole_extents(values: int) -> Callable[[Resolved], Extents]:
    def extents(r: Resolved) -> Extents:
        rep = r.n("repeatTime")
        one = values * r.size("dst")
        return {
            "dst": (rep - 1) * r.n("dstRepStride") * one + one,
            "src": rep_span(rep, r.n("srcRepStride"), r.n("srcBlkStride"), r.n("mask"), r.size("src")),
        }

    return extents


_WHOLE = (
    Param("mask", "i32", hi=128),
    Param("repeatTime", "i32", hi=255),
    Param("dstRepStride", "i32", hi=65535),
    Param("srcBlkStride", "i32", hi=65535),
    Param("srcRepStride", "i32", hi=65535),
)
declare(
    InstrSpec(
        "WholeReduceSum",
        "WholeReduceSum({dst}, {src}, {mask}, {repeatTime}, {dstRepStride}, {srcBlkStride}, {srcRepStride})",
        "V",
        (Operand("dst", "w", UB, F), Operand("src", "r", UB, F)),
        _WHOLE,
        _whole_extents(1),
        rep_work,
        "one sum per repeat, dstRepStride elements apart",
        same_dtype=("dst", "src"),
    )
)
for _name in ("WholeReduceMax", "WholeReduceMin"):
    for _suffix, _order, _values in (("", "ORDER_VALUE_INDEX", 2), (".value", "ORDER_ONLY_VALUE", 1)):
        declare(
            InstrSpec(
                f"{_name}{_suffix}",
                f"{_name}({{dst}}, {{src}}, {{mask}}, {{repeatTime}}, {{dstRepStride}}, {{srcBlkStride}}, "
                f"{{srcRepStride}}, ReduceOrder::{_order})",
                "V",
                (Operand("dst", "w", UB, F), Operand("src", "r", UB, F)),
                _WHOLE,
                _whole_extents(_values),
                rep_work,
                "one value (or value-index pair) per repeat; dstRepStride counts them",
                same_dtype=("dst", "src"),
            )
        )


def _block_extents(r: Resolved) -> Extents:
    rep = r.n("repeatTime")
    one = 8 * r.size("dst")
    return {
        "dst": (rep - 1) * r.n("dstRepStride") * one + -(-r.n("mask") * r.size("src") // 32) * r.size("dst"),
        "src": rep_span(rep, r.n("srcRepStride"), r.n("srcBlkStride"), r.n("mask"), r.size("src")),
    }


for _name in ("BlockReduceSum", "BlockReduceMax", "BlockReduceMin"):
    declare(
        InstrSpec(
            _name,
            f"{_name}({{dst}}, {{src}}, {{repeatTime}}, {{mask}}, {{dstRepStride}}, {{srcBlkStride}}, "
            "{srcRepStride})",
            "V",
            (Operand("dst", "w", UB, F), Operand("src", "r", UB, F)),
            _WHOLE,
            _block_extents,
            rep_work,
            "one result per 32-byte block; dstRepStride counts 8 results",
            same_dtype=("dst", "src"),
        )
    )


def _reduce_extents(r: Resolved) -> Extents:
    n, size = r.n("count"), r.size("src")
    return {"dst": size, "src": n * size, "work": max(32, -(-repeats_of(n * size) * size // 32) * 32)}


def _reduce_work(r: Resolved, path: str) -> Work:
    nbytes = r.n("count") * r.size("src")
    return Work("vector", "", nbytes, r.dtypes["src"], repeats=repeats_of(nbytes))


for _name in ("ReduceSum", "ReduceMax", "ReduceMin"):
    declare(
        InstrSpec(
            _name,
            f"{_name}({{dst}}, {{src}}, {{work}}, {{count}})",
            "V",
            (Operand("dst", "w", UB, F), Operand("src", "r", UB, F), Operand("work", "w", UB, F)),
            COUNT,
            _reduce_extents,
            _reduce_work,
            "software loop over WholeReduce; work holds one value per repeat of src",
            same_dtype=("dst", "src", "work"),
        )
    )
