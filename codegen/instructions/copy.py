"""Moves between device memory and on-chip memory, and inside on-chip memory (CANN asc-devkit docs: DataCopy,
DataCopyPad)."""

from __future__ import annotations

from moec.codegen.instructions.spec import Extents, InstrSpec, Operand, Param, Resolved, Work, declare, repeats_of

BLOCK = 32
UP_TO_32_BITS = ("i8", "u8", "i16", "u16", "f16", "bf16", "i32", "u32", "f32")
ANY = (*UP_TO_32_BITS, "i64", "u64")
SUMS = ("i8", "i16", "f16", "bf16", "i32", "f32")
"""What copies into device memory can add there."""


def _count_extents(r: Resolved) -> Extents:
    n = r.n("count")
    return {"dst": n * r.size("dst"), "src": n * r.size("src")}


def _count_work(r: Resolved, path: str) -> Work:
    nbytes = r.n("count") * r.size("src")
    if path == "UB->UB":
        return Work("vector", path, nbytes, r.dtypes["src"], repeats=repeats_of(nbytes))
    return Work("copy", path, nbytes, r.dtypes["src"], bursts=1, burst_bytes=nbytes, pitch=nbytes)


_PATHS = {
    "GM->UB": "MTE2",
    "GM->L1": "MTE2",
    "UB->GM": "MTE3",
    "L1->GM": "MTE3",
    "UB->UB": "V",
}

declare(
    InstrSpec(
        "DataCopy",
        "DataCopy({dst}, {src}, {count})",
        _PATHS,
        (Operand("dst", "w", ("UB", "L1", "GM"), ANY), Operand("src", "r", ("GM", "UB", "L1"), ANY)),
        (Param("count", "u32"),),
        _count_extents,
        _count_work,
        "contiguous copy; count * itemsize must be a multiple of 32 bytes",
        same_dtype=("dst", "src"),
    )
)


def _blocks_extents(r: Resolved) -> Extents:
    count, length = r.n("blockCount"), r.n("blockLen")
    src = (count - 1) * (length + r.n("srcStride")) + length
    dst = (count - 1) * (length + r.n("dstStride")) + length
    return {"dst": dst * BLOCK, "src": src * BLOCK}


def _blocks_work(r: Resolved, path: str) -> Work:
    count, length = r.n("blockCount"), r.n("blockLen") * BLOCK
    if path == "UB->UB":
        return Work("vector", path, count * length, r.dtypes["src"], repeats=repeats_of(count * length))
    gap = r.n("srcStride" if path.startswith("GM") else "dstStride") * BLOCK
    return Work("copy", path, count * length, r.dtypes["src"], count, length, length + gap)


declare(
    InstrSpec(
        "DataCopyBlocks",
        "DataCopy({dst}, {src}, DataCopyParams{{{blockCount}, {blockLen}, {srcStride}, {dstStride}}})",
        _PATHS,
        (Operand("dst", "w", ("UB", "L1", "GM"), ANY), Operand("src", "r", ("GM", "UB", "L1"), ANY)),
        (
            Param("blockCount", "u16", hi=4095),
            Param("blockLen", "u16"),
            Param("srcStride", "u16"),
            Param("dstStride", "u16"),
        ),
        _blocks_extents,
        _blocks_work,
        "strided copy; lengths and gaps in 32-byte blocks",
        same_dtype=("dst", "src"),
    )
)


def _up(n: int) -> int:
    return -(-n // BLOCK) * BLOCK


def _pad_in_extents(r: Resolved) -> Extents:
    count, length = r.n("blockCount"), r.n("blockLen")
    row = _up(length + (r.n("leftPadding") + r.n("rightPadding")) * r.size("dst"))
    return {
        "dst": (count - 1) * (row + r.n("dstStride") * BLOCK) + row,
        "src": (count - 1) * (length + r.n("srcStride")) + length,
    }


def _pad_in_work(r: Resolved, path: str) -> Work:
    count, length = r.n("blockCount"), r.n("blockLen")
    return Work("copy", path, count * length, r.dtypes["src"], count, length, length + r.n("srcStride"))


declare(
    InstrSpec(
        "DataCopyPadIn",
        "DataCopyPad({dst}, {src}, DataCopyExtParams{{{blockCount}, {blockLen}, {srcStride}, {dstStride}, 0}}, "
        "DataCopyPadExtParams<{T.dst}>{{{isPad}, {leftPadding}, {rightPadding}, {paddingValue}}})",
        {"GM->UB": "MTE2"},
        (Operand("dst", "w", ("UB",), ANY), Operand("src", "r", ("GM",), ANY)),
        (
            Param("blockCount", "u16", hi=4095),
            Param("blockLen", "u32", hi=2097151),
            Param("srcStride", "u32"),
            Param("dstStride", "u32"),
            Param("isPad", "bool"),
            Param("leftPadding", "u8"),
            Param("rightPadding", "u8"),
            Param("paddingValue", "elem"),
        ),
        _pad_in_extents,
        _pad_in_work,
        "rows of any byte length into UB, each starting on a 32-byte block; blockLen and srcStride in bytes, dstStride "
        "in 32-byte blocks; paddings in elements (at most 32 bytes each side)",
        pad=True,
        same_dtype=("dst", "src"),
    )
)


def _pad_out_extents(r: Resolved) -> Extents:
    count, length = r.n("blockCount"), r.n("blockLen")
    return {
        "dst": (count - 1) * (length + r.n("dstStride")) + length,
        "src": (count - 1) * (_up(length) + r.n("srcStride") * BLOCK) + length,
    }


def _pad_out_work(r: Resolved, path: str) -> Work:
    count, length = r.n("blockCount"), r.n("blockLen")
    return Work("copy", path, count * length, r.dtypes["src"], count, length, length + r.n("dstStride"))


declare(
    InstrSpec(
        "DataCopyPadOut",
        "DataCopyPad({dst}, {src}, DataCopyExtParams{{{blockCount}, {blockLen}, {srcStride}, {dstStride}, 0}})",
        {"UB->GM": "MTE3"},
        (Operand("dst", "w", ("GM",), ANY), Operand("src", "r", ("UB",), ANY)),
        (
            Param("blockCount", "u16", hi=4095),
            Param("blockLen", "u32", hi=2097151),
            Param("srcStride", "u32"),
            Param("dstStride", "u32"),
        ),
        _pad_out_extents,
        _pad_out_work,
        "rows of any byte length out of UB; blockLen and dstStride in bytes, srcStride in 32-byte blocks",
        pad=True,
        same_dtype=("dst", "src"),
    )
)


def _nd2nz_extents(r: Resolved) -> Extents:
    c0 = BLOCK // r.size("dst")
    columns = -(-r.n("dValue") // c0)
    step_c, step_n = r.n("dstNzC0Stride") * BLOCK, r.n("dstNzNStride") * BLOCK
    one = (columns - 1) * step_c + (r.n("nValue") - 1) * step_n + BLOCK
    src = ((r.n("nValue") - 1) * r.n("srcDValue") + r.n("dValue")) * r.size("src")
    last = r.n("ndNum") - 1
    return {
        "dst": last * r.n("dstNzMatrixStride") * r.size("dst") + one,
        "src": last * r.n("srcNdMatrixStride") * r.size("src") + src,
    }


def _nd2nz_work(r: Resolved, path: str) -> Work:
    row = r.n("dValue") * r.size("src")
    rows = r.n("ndNum") * r.n("nValue")
    return Work("nd2nz", path, rows * row, r.dtypes["src"], rows, row, r.n("srcDValue") * r.size("src"))


declare(
    InstrSpec(
        "Nd2Nz",
        "DataCopy({dst}, {src}, Nd2NzParams{{{ndNum}, {nValue}, {dValue}, {srcNdMatrixStride}, {srcDValue}, "
        "{dstNzC0Stride}, {dstNzNStride}, {dstNzMatrixStride}}})",
        {"GM->L1": "MTE2"},
        (Operand("dst", "w", ("L1",), UP_TO_32_BITS), Operand("src", "r", ("GM",), UP_TO_32_BITS)),
        (
            Param("ndNum", "u16", hi=4095),
            Param("nValue", "u16", hi=16384),
            Param("dValue", "u16"),
            Param("srcNdMatrixStride", "u16"),
            Param("srcDValue", "u16"),
            Param("dstNzC0Stride", "u16", hi=16384),
            Param("dstNzNStride", "u16", hi=16384),
            Param("dstNzMatrixStride", "u16", hi=16384),
        ),
        _nd2nz_extents,
        _nd2nz_work,
        "row-major device matrix into L1 as columns of 32 bytes (NZ); ragged last column is zero-filled",
        same_dtype=("dst", "src"),
    )
)


def _nothing(r: Resolved) -> Extents:
    return {}


for _name, _call, _doc in (
    ("SetAtomicAdd", "SetAtomicAdd<{T.like}>()", "later copies to device memory add instead of overwrite"),
):
    declare(
        InstrSpec(
            _name,
            _call,
            "S",
            (Operand("like", "", ("GM", "UB", "L0C"), SUMS),),
            (),
            _nothing,
            lambda r, p: Work("scalar"),
            _doc,
        )
    )
declare(
    InstrSpec(
        "BypassL2",
        "{of}.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE)",
        "S",
        (Operand("of", "", ("GM",), ANY),),
        (),
        _nothing,
        lambda r, p: Work("scalar"),
        "later reads of a device tensor do not stay in the L2: for what is read once",
    )
)
declare(
    InstrSpec(
        "SetAtomicNone", "SetAtomicNone()", "S", (), (), _nothing, lambda r, p: Work("scalar"), "end of SetAtomicAdd"
    )
)
declare(
    InstrSpec(
        "DataCacheCleanAndInvalid",
        "DataCacheCleanAndInvalid<{T.dst}, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>({dst})",
        "S",
        (Operand("dst", "rw", ("GM",), ANY),),
        (),
        lambda r: {"dst": 64},
        lambda r, p: Work("scalar"),
        "writes back and drops the scalar data cache, after scalar writes or before scalar reads of device memory",
    )
)
