"""Cube instructions: L1 to L0, Mmad, Fixpipe (CANN asc-devkit docs: LoadData, Mmad, Fixpipe for NPU arch 2201)."""

from __future__ import annotations

from moec.codegen.instructions.spec import Extents, InstrSpec, Operand, Param, Resolved, Work, declare

FRACTAL = 512  # bytes of one 16 x C0 fractal
FACTORS = ("f32", "f16", "bf16", "i8")


def _load2d_extents(r: Resolved) -> Extents:
    n = r.n("repeatTimes")
    start = r.n("startIndex")
    src = start + (n - 1) * r.n("srcStride") + 1
    return {"dst": ((n - 1) * (r.n("dstGap") + 1) + 1) * FRACTAL, "src": src * FRACTAL}


declare(
    InstrSpec(
        "LoadData",
        "LoadData({dst}, {src}, LoadData2DParams{{{startIndex}, {repeatTimes}, {srcStride}, 0, {dstGap}, "
        "{ifTranspose}, 0}})",
        {"L1->L0A": "MTE1", "L1->L0B": "MTE1"},
        (Operand("dst", "w", ("L0A", "L0B"), FACTORS), Operand("src", "r", ("L1",), FACTORS)),
        (
            Param("startIndex", "u16"),
            Param("repeatTimes", "u8"),
            Param("srcStride", "u16"),
            Param("dstGap", "u16"),
            Param("ifTranspose", "bool"),
        ),
        _load2d_extents,
        lambda r, path: Work("load2d", path, r.n("repeatTimes") * FRACTAL, r.dtypes["src"]),
        "512-byte fractals; srcStride from start to start, dstGap from end to start, both in fractals",
        same_dtype=("dst", "src"),
        only={(d, d): {"ifTranspose": (False,)} for d in ("f32", "i8")},
    )
)


def _transpose_extents(r: Resolved) -> Extents:
    square = FRACTAL * (2 if r.size("src") != 2 else 1)
    n = r.n("repeatTimes")
    src = r.n("startIndex") + (n - 1) * r.n("srcStride") + 1
    dst = (n - 1) * (r.n("dstGap") + 1) + 1 + (r.n("dstFracGap") + 1 if r.size("src") != 2 else 0)
    return {"dst": dst * FRACTAL, "src": src * square}


def _transpose_work(r: Resolved, path: str) -> Work:
    square = FRACTAL * (2 if r.size("src") != 2 else 1)
    return Work("load2d", path, r.n("repeatTimes") * square, r.dtypes["src"])


declare(
    InstrSpec(
        "LoadDataWithTranspose",
        "LoadDataWithTranspose({dst}, {src}, LoadData2dTransposeParams{{{startIndex}, {repeatTimes}, {srcStride}, "
        "{dstGap}, {dstFracGap}}})",
        {"L1->L0A": "MTE1", "L1->L0B": "MTE1"},
        (Operand("dst", "w", ("L0A", "L0B"), FACTORS), Operand("src", "r", ("L1",), FACTORS)),
        (
            Param("startIndex", "u16"),
            Param("repeatTimes", "u8"),
            Param("srcStride", "u16"),
            Param("dstGap", "u16"),
            Param("dstFracGap", "u16"),
        ),
        _transpose_extents,
        _transpose_work,
        "squares of 16x16 (f32: two fractals) transposed on the way; strides in squares, gaps in fractals",
        same_dtype=("dst", "src"),
    )
)


def _mmad_extents(r: Resolved) -> Extents:
    m16, n16 = -(-r.n("m") // 16), -(-r.n("n") // 16)
    k0 = 32 // r.size("a")
    kb = -(-r.n("k") // k0)
    return {"c": m16 * n16 * 1024, "a": m16 * kb * FRACTAL, "b": n16 * kb * FRACTAL}


declare(
    InstrSpec(
        "Mmad",
        "Mmad({c}, {a}, {b}, MmadParams{{{m}, {n}, {k}, {unitFlag}, false, {cmatrixInitVal}}})",
        "M",
        (
            Operand("c", "rw", ("L0C",), ("f32", "i32"), align=1024),
            Operand("a", "r", ("L0A",), FACTORS),
            Operand("b", "r", ("L0B",), FACTORS),
        ),
        (
            Param("m", "u16", hi=4095),
            Param("n", "u16", hi=4095),
            Param("k", "u16", hi=4095),
            Param("unitFlag", "u8"),
            Param("cmatrixInitVal", "bool"),
        ),
        _mmad_extents,
        lambda r, path: Work("mmad", "", 0, r.dtypes["a"], m=r.n("m"), n=r.n("n"), k=r.n("k")),
        "c (+)= a @ b; cmatrixInitVal true starts from zero",
        same_dtype=("a", "b"),
        only={("i32" if d == "i8" else "f32", d, d): {} for d in FACTORS},
        closed=True,
    )
)


QUANT = {"f32": "NoQuant", "f16": "F322F16", "bf16": "F322BF16"}


def _fixpipe_extents(r: Resolved) -> Extents:
    m, n = r.n("mSize"), r.n("nSize")
    src = (-(-n // 16) - 1) * r.n("srcStride") * 64 + m * 64
    return {"src": src, "dst": ((m - 1) * r.n("dstStride") + n) * r.size("dst")}


def _fixpipe_work(r: Resolved, path: str) -> Work:
    m, n = r.n("mSize"), r.n("nSize")
    size = r.size("dst")
    return Work("fixpipe", path, m * n * size, r.dtypes["dst"], m, n * size, r.n("dstStride") * size, m=m, n=n)


declare(
    InstrSpec(
        "Fixpipe",
        "Fixpipe<{T.dst}, {T.src}, CFG_ROW_MAJOR>({dst}, {src}, FixpipeParamsV220{{{nSize}, {mSize}, {srcStride}, "
        "{dstStride}, false, {quantPre}, 0, 1, 0, 0, {unitFlag}}})",
        {"L0C->GM": "FIX"},
        (Operand("dst", "w", ("GM",), ("f32", "f16", "bf16")), Operand("src", "r", ("L0C",), ("f32",))),
        (
            Param("nSize", "u16", hi=4095),
            Param("mSize", "u16", hi=8192),
            Param("srcStride", "u16"),
            Param("dstStride", "u32"),
            Param("quantPre", "enum", tuple(f"QuantMode_t::{m}" for m in QUANT.values())),
            Param("unitFlag", "u8"),
        ),
        _fixpipe_extents,
        _fixpipe_work,
        "L0C tile to a row-major device matrix, rounding to the destination's dtype; srcStride in rows of L0C, "
        "dstStride in elements",
        only={(d, "f32"): {"quantPre": (f"QuantMode_t::{m}",)} for d, m in QUANT.items()},
    )
)
