"""Filling, gathering, sorting and layout on the vector unit (CANN asc-devkit docs; dtypes of NPU arch 2201)."""

from __future__ import annotations

from moec.codegen.instructions.spec import Extents, InstrSpec, Operand, Param, Resolved, Work, declare, repeats_of
from moec.codegen.instructions.vector import COUNT, UB, count_extents, count_work, rep_work

F = ("f16", "f32")
ANY16_32 = ("f16", "bf16", "i16", "u16", "f32", "i32", "u32")
SORT_ALIGN, SORTED_ALIGN = 128, 256
"""Bytes that addresses of what Sort32 sorts (f16 scores: half of it), and of its records, are multiples of."""

declare(
    InstrSpec(
        "Duplicate",
        "Duplicate({dst}, {scalar}, {count})",
        "V",
        (Operand("dst", "w", UB, ANY16_32),),
        (Param("scalar", "elem"), *COUNT),
        count_extents("dst"),
        count_work,
        "fills with one value",
    )
)
declare(
    InstrSpec(
        "ArithProgression",
        "ArithProgression({dst}, {firstValue}, {diffValue}, {count})",
        "V",
        (Operand("dst", "w", UB, ("f16", "f32", "i16", "i32")),),
        (Param("firstValue", "elem"), Param("diffValue", "elem"), *COUNT),
        count_extents("dst"),
        count_work,
        "first, first + diff, ...",
        header="lib/index/arithprogression.h",
    )
)
declare(
    InstrSpec(
        "Brcb",
        "Brcb({dst}, {src}, {repeatTime}, BrcbRepeatParams{{{dstBlkStride}, {dstRepStride}}})",
        "V",
        (Operand("dst", "w", UB, ANY16_32), Operand("src", "r", UB, ANY16_32)),
        (Param("repeatTime", "u8", hi=255), Param("dstBlkStride", "u16"), Param("dstRepStride", "u16")),
        lambda r: {
            "dst": ((r.n("repeatTime") - 1) * r.n("dstRepStride") + 7 * r.n("dstBlkStride") + 1) * 32,
            "src": r.n("repeatTime") * 8 * r.size("src"),
        },
        lambda r, p: Work("vector", "", r.n("repeatTime") * 256, r.dtypes["dst"], repeats=r.n("repeatTime")),
        "8 elements a repeat, each spread over one 32-byte block",
        same_dtype=("dst", "src"),
    )
)


def _copy_extents(r: Resolved) -> Extents:
    one = -(-r.n("mask") * r.size("dst") // 32)
    rep = r.n("repeatTime")
    span = r.n("mask") * r.size("dst") - (one - 1) * 32
    return {
        "dst": (rep - 1) * r.n("dstRepeatSize") * 32 + (one - 1) * r.n("dstStride") * 32 + span,
        "src": (rep - 1) * r.n("srcRepeatSize") * 32 + (one - 1) * r.n("srcStride") * 32 + span,
    }


declare(
    InstrSpec(
        "Copy",
        "Copy({dst}, {src}, {mask}, {repeatTime}, CopyRepeatParams{{{dstStride}, {srcStride}, {dstRepeatSize}, "
        "{srcRepeatSize}}})",
        "V",
        (Operand("dst", "w", UB, ANY16_32), Operand("src", "r", UB, ANY16_32)),
        (
            Param("mask", "u64", hi=128),
            Param("repeatTime", "u8", hi=255),
            Param("dstStride", "u16"),
            Param("srcStride", "u16"),
            Param("dstRepeatSize", "u16", hi=4095),
            Param("srcRepeatSize", "u16", hi=4095),
        ),
        _copy_extents,
        rep_work,
        "strided UB copy; strides in 32-byte blocks",
        same_dtype=("dst", "src"),
    )
)


def _gather_extents(r: Resolved) -> Extents:
    n = r.n("count")
    return {"dst": n * r.size("dst"), "src": r.n("srcBytes"), "offsets": n * 4}


declare(
    InstrSpec(
        "Gather",
        "Gather({dst}, {src}, {offsets}, {base}, {count})",
        "V",
        (Operand("dst", "w", UB, ANY16_32), Operand("src", "r", UB, ANY16_32), Operand("offsets", "r", UB, ("u32",))),
        (Param("base", "u32"), Param("count", "u32"), Param("srcBytes", "u32")),
        _gather_extents,
        count_work,
        "dst[i] = byte offset base + offsets[i] of src; srcBytes (not printed) bounds what may be read of src",
        same_dtype=("dst", "src"),
    )
)


def _mask_extents(r: Resolved) -> Extents:
    rep = r.n("repeatTimes")
    span = r.n("mask") * r.size("src0")
    share = {1: 2, 2: 2, 7: 1}.get(r.n("pattern"), 4)  # of how many elements one is kept
    kept = -(-r.n("mask") // share) * r.size("dst")
    return {"dst": rep * kept, "src0": (rep - 1) * r.n("src0RepeatStride") * 32 + span}


declare(
    InstrSpec(
        "GatherMask",
        "{{ uint64_t rsvdCnt = 0; GatherMask({dst}, {src0}, {pattern}, {reduceMode}, {mask}, "
        "GatherMaskParams{{{src0BlockStride}, {repeatTimes}, {src0RepeatStride}, {src1RepeatStride}}}, rsvdCnt); }}",
        "V",
        (Operand("dst", "w", UB, ANY16_32), Operand("src0", "r", UB, ANY16_32)),
        (
            Param("pattern", "u8", hi=7),
            Param("reduceMode", "bool"),
            Param("mask", "u32"),
            Param("src0BlockStride", "u8"),
            Param("repeatTimes", "u16"),
            Param("src0RepeatStride", "u16"),
            Param("src1RepeatStride", "u8"),
        ),
        _mask_extents,
        lambda r, p: Work(
            "vector",
            "",
            r.n("repeatTimes") * r.n("mask") * r.size("src0"),
            r.dtypes["src0"],
            repeats=r.n("repeatTimes") * repeats_of(r.n("mask") * r.size("src0")),
        ),
        "fixed pattern: 1 even, 2 odd elements, 3..6 one of four, 7 all; reduceMode true: mask elements per repeat",
        same_dtype=("dst", "src0"),
    )
)


def _bits_extents(r: Resolved) -> Extents:
    span = r.n("mask") * r.size("src0")
    return {"dst": span, "src0": span, "bits": -(-r.n("mask") // 8)}


def _bits_work(r: Resolved, path: str) -> Work:
    span = r.n("mask") * r.size("src0")
    return Work("vector", "", span, r.dtypes["src0"], repeats=repeats_of(span))


declare(
    InstrSpec(
        "GatherMask.bits",
        "{{ uint64_t rsvdCnt = 0; GatherMask({dst}, {src0}, {bits}, true, {mask}, GatherMaskParams{{1, 1, 0, 0}}, "
        "rsvdCnt); }}",
        "V",
        (
            Operand("dst", "w", UB, ("f32", "i32", "u32")),
            Operand("src0", "r", UB, ("f32", "i32", "u32")),
            Operand("bits", "r", UB, ("u32",)),
        ),
        (Param("mask", "u32"),),
        _bits_extents,
        lambda r, p: Work(
            "vector",
            "",
            r.n("mask") * r.size("src0"),
            r.dtypes["src0"],
            repeats=repeats_of(r.n("mask") * r.size("src0")),
        ),
        "those of mask elements of src0 whose bit is set, one after the other",
        same_dtype=("dst", "src0"),
    )
)


def _sort_extents(r: Resolved) -> Extents:
    n = 32 * r.n("repeatTime")
    return {"dst": n * 8, "src": n * r.size("src"), "index": n * 4}


declare(
    InstrSpec(
        "Sort32",
        "Sort32<{T.src}>({dst}, {src}, {index}, {repeatTime})",
        "V",
        (
            Operand("dst", "w", UB, F, SORTED_ALIGN),
            Operand("src", "r", UB, F, SORT_ALIGN),
            Operand("index", "r", UB, ("u32",), SORT_ALIGN),
        ),
        (Param("repeatTime", "i32", hi=255),),
        _sort_extents,
        lambda r, p: Work(
            "vector", "", 32 * r.n("repeatTime") * r.size("src"), r.dtypes["src"], repeats=r.n("repeatTime")
        ),
        "32 scores a repeat into descending 8-byte (score, index) records; equal scores keep the lower index first",
        same_dtype=("dst", "src"),
    )
)

LISTS = ("src1", "src2", "src3", "src4")


def _mrg_extents(r: Resolved) -> Extents:
    lengths = [r.n(f"length{i}") for i in range(1, 5)]
    valid = r.n("validBit")
    total = sum(n for i, n in enumerate(lengths) if valid >> i & 1)
    out = {"dst": total * 8 * r.n("repeatTimes")}
    for i, (name, n) in enumerate(zip(LISTS, lengths, strict=True)):
        out[name] = n * 8 * r.n("repeatTimes") if valid >> i & 1 else 0
    return out


declare(
    InstrSpec(
        "MrgSort",
        "{{ const uint16_t elementCountList[4] = {{{length1}, {length2}, {length3}, {length4}}}; "
        "uint32_t sortedNum[4]; MrgSort<{T.dst}>({dst}, MrgSortSrcList<{T.dst}>{{{src1}, {src2}, {src3}, {src4}}}, "
        "elementCountList, sortedNum, {validBit}, {repeatTimes}); }}",
        "V",
        (Operand("dst", "w", UB, F), *(Operand(n, "r", UB, F) for n in LISTS)),
        (
            *(Param(f"length{i}", "u16", hi=4095) for i in range(1, 5)),
            Param("validBit", "u16", hi=15),
            Param("repeatTimes", "i32", hi=255),
        ),
        _mrg_extents,
        lambda r, p: Work(
            "vector", "", int(_mrg_extents(r)["dst"]), r.dtypes["dst"], repeats=repeats_of(int(_mrg_extents(r)["dst"]))
        ),
        "merges up to four descending record lists; bit i of validBit uses list i",
        same_dtype=("dst", *LISTS),
    )
)
