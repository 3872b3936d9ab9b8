"""Kernels of published measurements (CANN asc-devkit examples, best practices on Atlas A2), as tile programs."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Kernel
from moec.codegen.scalar import Scalar, ceildiv, smin

WHOLE_UB = Capacities(ub=192 * 1024)
ROOM = Capacities(ub=1 << 20, l1=1 << 20)


def copies(
    core: str, shape: tuple[int, int], tile: tuple[int, int], passes: int = 1, slices: int = 1, bypass: bool = False
) -> Kernel:
    """data_copy: all cores read an f16 matrix once or more, each its rows, tile by tile; ``slices`` of columns are read
    ``passes`` times before the next. Cube cores read by nd2nz into L1, vector cores into UB."""
    rows, cols = shape
    k, cores = _reader(core, shape, tile, bypass)
    each = rows // cores
    down, across = each // tile[0], ceildiv(cols // slices, tile[1])
    with k.loop("s", 0, slices) as s, k.loop("p", 0, passes), k.loop("m", 0, down) as m, k.loop("n", 0, across) as n:
        at = s * (cols // slices) + n * tile[1]
        _read(k, core, shape, tile, k.core * each + m * tile[0], at, smin(tile[1], cols - at))
    return k.draft(cores)


def everything(core: str, shape: tuple[int, int], tile: tuple[int, int], rotated: bool) -> Kernel:
    """data_copy: every core reads the whole matrix past the L2, all in the same order or each starting at its own
    rows."""
    rows, cols = shape
    k, cores = _reader(core, shape, tile, True)
    with k.loop("b", 0, cores) as b, k.loop("n", 0, cols // tile[1]) as n:
        block: Scalar = (b + k.core) % cores if rotated else b
        _read(k, core, shape, tile, block * (rows // cores), n * tile[1], tile[1])
    return k.draft(cores)


def _reader(core: str, shape: tuple[int, int], tile: tuple[int, int], bypass: bool) -> tuple[KernelBuilder, int]:
    k = KernelBuilder("copies", core, ROOM)
    x = k.gm("x", "f16", shape, "in")
    k.buffer("L1" if core == "aic" else "UB", "local", "f16", tile[0] * tile[1])
    if bypass:
        k.op("BypassL2", x[0])
    return k, 24 if core == "aic" else 48


def _read(
    k: KernelBuilder, core: str, shape: tuple[int, int], tile: tuple[int, int], row: Scalar, col: Scalar, width: Scalar
) -> None:
    local, x = k._buffers[0][0], k._params[0]
    source = x[row * shape[1] + col]
    if core == "aiv":
        k.load(local, source, width, tile[0], shape[1])
        return
    strides = {"srcNdMatrixStride": 0, "dstNzC0Stride": tile[0], "dstNzNStride": 1, "dstNzMatrixStride": 0}
    k.op("Nd2Nz", local, source, ndNum=1, nValue=tile[0], dValue=width, srcDValue=shape[1], **strides)


def add(cores: int, length: int, slots: int = 1, in_turn: bool = False, bypass: bool = False) -> Kernel:
    """add_high_performance: z = x + y of 8192 x 8192 f16 in pieces of ``length``, each core its rows; ``in_turn``: a
    piece is stored before the next is loaded. y follows x in UB, so ``length`` decides in which banks it lies."""
    size = 8192 * 8192
    k = KernelBuilder("add", "aiv", WHOLE_UB)
    x, y = k.gm("x", "f16", (size,), "in"), k.gm("y", "f16", (size,), "in")
    z = k.gm("z", "f16", (size,), "out")
    if bypass:
        k.op("BypassL2", x[0])
        k.op("BypassL2", y[0])
    both = k.ub("xy", "f16", 2 * length, slots)
    out = both if in_turn else k.ub("z", "f16", length, slots)
    rows = -(-8192 // cores)
    first = k.let("first", k.core * (rows * 8192))
    count = k.let("count", smin(rows * 8192, size - first))
    with k.loop("t", 0, ceildiv(count, length)) as t:
        slot = k.slot(slots) if slots > 1 else 0
        n = k.let("n", smin(length, count - t * length))
        at = first + t * length
        k.load(both[slot], x[at], n)
        k.load(both[slot][length], y[at], n)
        k.v("Add", out[slot], both[slot], both[slot][length], count=n)
        k.store(z[at], out[slot], n)
    k.witness(1)
    return k.finish(cores)
