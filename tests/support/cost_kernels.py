"""Kernels for the cost tests: a few written by hand, and random ones with loops, tails, counters, flags, branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from moec.codegen.kernel_ir import (
    Assign,
    Barrier,
    Buffer,
    For,
    GmRef,
    GmTensor,
    If,
    Instr,
    Kernel,
    Let,
    LoadScalar,
    LocalRef,
    ScalarArg,
    SetFlag,
    Stmt,
    SyncAll,
    WaitFlag,
)
from moec.codegen.scalar import Arg, Core, Scalar, Var, ceildiv, eq, smin

UB = Buffer("ub", "UB", "f32", 0, 4096, 4)
ROWS = 4096
"""Elements of the device tensors x and y per argument ``n``."""


def load(count: Scalar, offset: Scalar = 0, rows: Scalar = 1, gap: Scalar = 0, slot: Scalar = 0) -> Instr:
    """GM to UB: ``rows`` rows of ``count`` f32, ``gap`` bytes apart, from element ``offset``."""
    names = ("blockCount", "blockLen", "srcStride", "dstStride", "isPad", "leftPadding", "rightPadding", "paddingValue")
    values: tuple[Any, ...] = (rows, count * 4, gap, 0, False, 0, 0, 0)
    return Instr("DataCopyPadIn", (LocalRef("ub", slot, 0, "f32"), GmRef("x", offset, "f32")), _pairs(names, values))


def store(count: Scalar, offset: Scalar = 0, slot: Scalar = 0) -> Instr:
    """UB to GM: ``count`` f32 to element ``offset``."""
    names = ("blockCount", "blockLen", "srcStride", "dstStride")
    return Instr(
        "DataCopyPadOut",
        (GmRef("y", offset, "f32"), LocalRef("ub", slot, 0, "f32")),
        _pairs(names, (1, count * 4, 0, 0)),
    )


def add(count: Scalar, slot: Scalar = 0, apart: int = 64) -> Instr:
    """Vector add of ``count`` f32; the second source lies ``apart`` elements after the first."""
    a, b = LocalRef("ub", slot, 0, "f32"), LocalRef("ub", slot, apart, "f32")
    return Instr("Add", (a, a, b), (("count", count),))


def exp(count: Scalar, slot: Scalar = 0) -> Instr:
    ref = LocalRef("ub", slot, 0, "f32")
    return Instr("Exp", (ref, ref), (("count", count),))


def _pairs(names: Sequence[str], values: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(zip(names, values, strict=True))


def kernel(body: Sequence[Stmt], blocks: Scalar = 1, counts: int = 8) -> Kernel:
    """A vector kernel over x, y and expert counts c with the argument ``n``."""
    n = Arg("n")
    params = (
        GmTensor("x", "f32", (n, ROWS), "in"),
        GmTensor("c", "i64", (counts,), "in", "counts"),
        GmTensor("y", "f32", (n, ROWS), "out"),
    )
    return Kernel("k", "aiv", params, (ScalarArg("n"),), (UB,), tuple(body), blocks)


def scale_kernel(tile: int = 4096) -> Kernel:
    """Double-buffered y = exp(x) in tiles, tiles dealt out over all cores, ragged last tile."""
    total, t, ping, count = Arg("n") * ROWS, Var("t"), Var("ping"), Var("count")
    body: tuple[Stmt, ...] = (
        Let(ping, 0),
        SetFlag("MTE3", "MTE2", 0),
        SetFlag("MTE3", "MTE2", 1),
        For(
            "t",
            Core("idx"),
            ceildiv(total, tile),
            Core("num"),
            (
                Let(count, smin(tile, total - t * tile)),
                WaitFlag("MTE3", "MTE2", ping),
                load(count, t * tile, slot=ping),
                SetFlag("MTE2", "V", ping),
                WaitFlag("MTE2", "V", ping),
                exp(count, ping),
                SetFlag("V", "MTE3", ping),
                WaitFlag("V", "MTE3", ping),
                store(count, t * tile, ping),
                SetFlag("MTE3", "MTE2", ping),
                Assign(ping, (ping + 1) % 2),
            ),
        ),
        WaitFlag("MTE3", "MTE2", 0),
        WaitFlag("MTE3", "MTE2", 1),
    )
    return kernel(body, ceildiv(total, tile))


PAIRS = (("MTE2", "V"), ("V", "MTE3"), ("MTE3", "MTE2"), ("V", "MTE2"))


class _Maker:
    """Draws statements; every variable it declares has a name of its own."""

    def __init__(self, draw: st.DrawFn):
        self.draw = draw
        self.named = 0

    def name(self, prefix: str) -> str:
        self.named += 1
        return f"{prefix}{self.named}"

    def scalar(self, known: Sequence[Var]) -> Scalar:
        """A small non-negative number made of the variables at hand."""
        kind = self.draw(st.sampled_from(("literal", "var", "sum", "mod", "tail", "core")))
        if kind == "core":
            return Core("idx") + self.draw(st.integers(0, 3))
        if kind == "literal" or not known:
            return self.draw(st.integers(0, 9))
        v = self.draw(st.sampled_from(list(known)))
        if kind == "var":
            return v
        if kind == "mod":
            return (v * self.draw(st.integers(1, 3)) + 1) % self.draw(st.integers(2, 4))
        if kind == "tail":
            return smin(self.draw(st.integers(1, 6)), v + 1)
        return v + self.draw(st.sampled_from(list(known))) * self.draw(st.integers(0, 2))

    def size(self, known: Sequence[Var]) -> Scalar:
        return (self.scalar(known) % 9 + 1) * self.draw(st.sampled_from((8, 24, 64, 200)))

    def block(self, known: list[Var], carried: list[Var], depth: int) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        known = list(known)
        for _ in range(self.draw(st.integers(1, 4))):
            out += self.statement(known, carried, depth)
        return tuple(out)

    def statement(self, known: list[Var], carried: list[Var], depth: int) -> list[Stmt]:
        kinds = ["load", "store", "add", "exp", "flag", "let", "carry", "barrier", "read"]
        kinds += ["for", "for", "if"] if depth else []
        kind = self.draw(st.sampled_from(kinds))
        if kind == "load":
            return [load(self.size(known), self.scalar(known) * self.draw(st.sampled_from((3, 128))))]
        if kind == "store":
            return [store(self.size(known), self.scalar(known) * self.draw(st.sampled_from((5, 64, 128))))]
        if kind == "add":
            return [add(self.size(known), self.scalar(known) % 3, self.draw(st.sampled_from((8, 64))))]
        if kind == "exp":
            return [exp(self.size(known))]
        if kind == "flag":
            src, dst = self.draw(st.sampled_from(PAIRS))
            event = self.scalar(known) % 4
            return [SetFlag(src, dst, event), WaitFlag(src, dst, event)]
        if kind == "barrier":
            return [Barrier(self.draw(st.sampled_from(("V", "MTE2", "ALL"))))]
        if kind in ("let", "read"):
            var = Var(self.name("v"))
            value = self.scalar(known)
            known.append(var)
            return [LoadScalar(var, GmRef("c", value % 8, "i64")) if kind == "read" else Let(var, value)]
        if kind == "carry":
            v = self.draw(st.sampled_from(carried))
            step = self.scalar(known)
            return [Assign(v, (v + step) % self.draw(st.integers(2, 5)) if self.draw(st.booleans()) else v + step)]
        if kind == "if":
            then = self.block(known, carried, depth - 1)
            other = self.block(known, carried, depth - 1) if self.draw(st.booleans()) else ()
            return [If(eq(self.scalar(known) % 3, 1), then, other)]
        var = Var(self.name("i"))
        stop = self.scalar(known) % 6 + self.draw(st.integers(0, 12))
        return [For(var.name, 0, stop, self.draw(st.integers(1, 2)), self.block([*known, var], carried, depth - 1))]


@st.composite
def random_kernels(draw: st.DrawFn, syncs: bool = False) -> Kernel:
    """Kernels with up to three nested loops; every WaitFlag follows its SetFlag. ``syncs``: a SyncAll at the top."""
    maker = _Maker(draw)
    carried = [Var("a"), Var("b")]
    head: list[Stmt] = [Let(v, 0) for v in carried]
    known = list(carried)
    body = [*head, *maker.block(known, carried, 3)]
    if syncs:
        body += [SyncAll(), *maker.block(known, carried, 2)]
    return kernel(body, draw(st.integers(1, 6)))
