"""Emits the steps of a vector program on one tile: each step as few instructions as the layout allows.

A tile is ``rows`` rows of ``cols`` columns, rows ``pitch`` elements apart in every full buffer. Work of one form runs
over everything at once. Work that mixes forms runs in one of two ways: *narrow* tiles take 64 columns of all rows in
one instruction (the repeat goes down the rows), *wide* ones take a whole row (the repeat goes along it); strides of 0
read the row or the col's block again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import LocalRef, ParamValue
from moec.codegen.kernels.vector.values import Scaled, Step, Val
from moec.codegen.scalar import Expr, Scalar, Var, binary, ceildiv, smin

LANES = 64
"""32-bit elements of one vector repeat."""
BLOCK = 8
"""32-bit elements of 32 bytes."""
MAX_REPEAT = 255
NEUTRAL = {"Sum": 0.0, "Max": float("-inf"), "Min": float("inf")}
FOLD = {"Sum": "Add", "Max": "Max", "Min": "Min"}
WHOLE = {"Sum": "WholeReduceSum", "Max": "WholeReduceMax.value", "Min": "WholeReduceMin.value"}

Place = Callable[[Val], LocalRef]


@dataclass(frozen=True)
class Tile:
    """Where the current tile is and how to walk it.

    ``width`` columns and ``count`` elements are what elementwise work covers: with the padding of the rows, so that
    nothing reads what nobody wrote. ``scratch`` gives a full f32 buffer for row reductions.
    """

    k: KernelBuilder
    rows: Scalar
    cols: Scalar
    pitch: Scalar
    width: Scalar
    count: Scalar
    col_count: Scalar
    narrow: bool
    place: Place
    scalars: Callable[[Val], Var]
    scratch: Callable[[Step], LocalRef]

    def emit(self, s: Step) -> None:
        """One step of the program."""
        special = {
            "Cast": self._cast,
            "Duplicate": self._duplicate,
            "Spread": self._spread,
            "Brcb": self._brcb,
            "RowSum": self._reduce,
            "RowMax": self._reduce,
            "RowMin": self._reduce,
            "Compare": self._compare,
            "CompareScalar": self._compare,
            "Select": self._select,
            "SelectScalar": self._select,
            "And": self._logic,
            "Or": self._logic,
            "Not": self._logic,
            "Even": self._gather,
            "Odd": self._gather,
        }.get(s.name)
        if special:
            special(s)
        elif any(v.form != s.dst.form for v in s.srcs):
            self._mixed(s)
        elif len(s.srcs) == 2 or "scalar" not in s.params:
            self.k.v(s.name, self.place(s.dst), *map(self.place, s.srcs), count=self.elements(s.dst))
        else:
            self.k.v(
                s.name, self.place(s.dst), self.place(s.srcs[0]), scalar=self.number(s), count=self.elements(s.dst)
            )

    def elements(self, v: Val) -> Scalar:
        """How many elements work on ``v``'s form covers."""
        if v.form == "double":
            return binary("*", self.count, 2)
        return {"full": self.count, "row": self.width, "col": self.col_count}[v.form]

    def number(self, s: Step) -> Scalar:
        """The scalar parameter of ``s``."""
        p = s.params["scalar"]
        if not isinstance(p, Scaled):
            assert isinstance(p, (int, float, Expr))
            return p
        var = self.scalars(p.value)
        return var if p.factor == 1 else binary("*", var, p.factor)

    # -- one form

    def _cast(self, s: Step) -> None:
        self.k.cast(self.place(s.dst), self.place(s.srcs[0]), self.elements(s.dst), str(s.params["mode"]))

    def _duplicate(self, s: Step) -> None:
        self.k.fill(self.place(s.dst), self.number(s), self.elements(s.dst))

    def _compare(self, s: Step) -> None:
        count = binary("*", ceildiv(self.elements(s.dst), LANES), LANES)
        operands = [self.place(v) for v in s.srcs]
        mode: dict[str, ParamValue] = {"mode": f"CMPMODE::{s.params['mode']}"}
        if s.name == "CompareScalar":
            mode["scalar"] = self.number(s)
        self.k.v(s.name, self.place(s.dst), *operands, count=count, **mode)

    def _select(self, s: Step) -> None:
        extra: dict[str, ParamValue] = {"scalar": self.number(s)} if s.name == "SelectScalar" else {}
        refs = [self.place(v) for v in (s.dst, *s.srcs)]
        refs = [r.cast("f32") if r.dtype == "i32" else r for r in refs]  # bits move as they are
        self.k.v(s.name, *refs, count=self.elements(s.dst), **extra)

    def _logic(self, s: Step) -> None:
        refs = [self.place(v).cast("u16") for v in (s.dst, *s.srcs)]
        self.k.v(s.name, *refs, count=ceildiv(self.elements(s.dst), 16))

    def _gather(self, s: Step) -> None:
        """Every second element of a tile twice as wide."""
        self.k.v(
            "GatherMask",
            self.place(s.dst),
            self.place(s.srcs[0]),
            pattern=1 if s.name == "Even" else 2,
            reduceMode=True,
            mask=self.elements(s.srcs[0]),
            src0BlockStride=1,
            repeatTimes=1,
            src0RepeatStride=0,
            src1RepeatStride=0,
        )

    # -- forms against one another

    @contextmanager
    def _chunks(self, width: Scalar) -> Iterator[tuple[Scalar, Scalar]]:
        """(first column, columns) of each run of 64 columns."""
        if isinstance(width, int) and width <= LANES:
            yield 0, width
            return
        with self.k.loop("j", 0, width, LANES) as j:
            whole = isinstance(width, int) and width % LANES == 0
            yield j, LANES if whole else smin(LANES, width - j)

    def walk(self, width: Scalar, emit: Callable[[Scalar, Scalar, Scalar, Scalar, bool], None]) -> None:
        """Calls emit(row, column, mask, repeat, down) until ``width`` columns of every row are covered."""
        if self.narrow:
            with self._chunks(width) as (j, mask):
                emit(0, j, mask, self.rows, True)
        elif self.rows == 1:
            self._along(0, width, emit)
        else:
            with self.k.loop("r", 0, self.rows) as r:
                self._along(r, width, emit)

    def _along(self, r: Scalar, width: Scalar, emit: Callable[[Scalar, Scalar, Scalar, Scalar, bool], None]) -> None:
        whole, rest = width // LANES, width % LANES
        if isinstance(width, int):
            if whole:
                emit(r, 0, LANES, whole, False)
            if rest:
                emit(r, binary("*", whole, LANES), rest, 1, False)
            return
        with self.k.if_(whole > 0):
            emit(r, 0, LANES, whole, False)
        with self.k.if_(rest > 0):
            emit(r, binary("*", whole, LANES), rest, 1, False)

    def part(self, v: Val, r: Scalar, j: Scalar) -> LocalRef:
        """``v`` from row ``r`` and column ``j`` on."""
        if v.form == "full":
            return self.place(v)[binary("+", binary("*", r, self.pitch), j)]
        return self.place(v)[j] if v.form == "row" else self.place(v)[binary("*", r, BLOCK)]

    def strides(self, v: Val, down: bool) -> tuple[Scalar, Scalar]:
        """Block and repeat stride of ``v``, in 32-byte blocks."""
        if v.form == "block":
            return 0, 1 if down else 0
        if not down:
            return 1, BLOCK
        return 1, self.pitch // BLOCK if v.form == "full" else 0

    def _mixed(self, s: Step) -> None:
        if not self.narrow and all(v.form in ("full", "row") for v in s.srcs):
            self._row_by_row(s)
            return

        def emit(r: Scalar, j: Scalar, mask: Scalar, repeat: Scalar, down: bool) -> None:
            (db, dr), (ab, ar), (bb, br) = (self.strides(v, down) for v in (s.dst, *s.srcs))
            refs = [self.part(v, r, j) for v in (s.dst, *s.srcs)]
            self.k.v(
                f"{s.name}.rep",
                *refs,
                mask=mask,
                repeatTime=repeat,
                dstBlkStride=db,
                src0BlkStride=ab,
                src1BlkStride=bb,
                dstRepStride=dr,
                src0RepStride=ar,
                src1RepStride=br,
            )

        self.walk(self.width, emit)

    def _row_by_row(self, s: Step) -> None:
        """A full against a row, a whole row an instruction."""
        if self.rows == 1:
            self.k.v(s.name, *(self.place(v) for v in (s.dst, *s.srcs)), count=self.width)
            return
        with self.k.loop("r", 0, self.rows) as r:
            self.k.v(s.name, *(self.part(v, r, 0) for v in (s.dst, *s.srcs)), count=self.width)

    def _spread(self, s: Step) -> None:
        def emit(r: Scalar, j: Scalar, mask: Scalar, repeat: Scalar, down: bool) -> None:
            (db, dr), (sb, sr) = self.strides(s.dst, down), self.strides(s.srcs[0], down)
            self.k.v(
                "Copy",
                self.part(s.dst, r, j),
                self.part(s.srcs[0], r, j),
                mask=mask,
                repeatTime=repeat,
                dstStride=db,
                srcStride=sb,
                dstRepeatSize=dr,
                srcRepeatSize=sr,
            )

        self.walk(self.width, emit)

    def _brcb(self, s: Step) -> None:
        self.k.v(
            "Brcb",
            self.place(s.dst),
            self.place(s.srcs[0]),
            repeatTime=ceildiv(self.rows, BLOCK),
            dstBlkStride=1,
            dstRepStride=BLOCK,
        )

    # -- reductions along the row

    def _reduce(self, s: Step) -> None:
        kind, src = s.name[3:], s.srcs[0]
        row = self.pitch // BLOCK
        if self.narrow and isinstance(self.cols, int) and self.cols <= LANES:
            self.whole(kind, self.place(s.dst), self.place(src), self.cols, row)
            return
        acc = self.scratch(s)
        if self.narrow:
            self._fold_narrow(kind, acc, src)
        else:
            self._fold_wide(kind, acc, src)
        self.whole(kind, self.place(s.dst), acc, LANES, BLOCK)

    def whole(self, kind: str, dst: LocalRef, src: LocalRef, mask: Scalar, stride: Scalar) -> None:
        self.k.v(
            WHOLE[kind], dst, src, mask=mask, repeatTime=self.rows, dstRepStride=1, srcBlkStride=1, srcRepStride=stride
        )

    def _fold_narrow(self, kind: str, acc: LocalRef, src: Val) -> None:
        """acc[row, 64] = the row's runs of 64 columns combined; a ragged run touches its own lanes only."""
        assert isinstance(self.cols, int)
        x, row = self.place(src), self.pitch // BLOCK
        strides: dict[str, ParamValue] = {
            "dstBlkStride": 1,
            "src0BlkStride": 1,
            "src1BlkStride": 1,
            "dstRepStride": BLOCK,
        }
        start = LANES
        if self.cols >= 2 * LANES:
            self.k.v(
                f"{FOLD[kind]}.rep",
                acc,
                x,
                x[LANES],
                mask=LANES,
                repeatTime=self.rows,
                **strides,
                src0RepStride=row,
                src1RepStride=row,
            )
            start = 2 * LANES
        else:
            self.k.v(
                "Copy",
                acc,
                x,
                mask=LANES,
                repeatTime=self.rows,
                dstStride=1,
                srcStride=1,
                dstRepeatSize=BLOCK,
                srcRepeatSize=row,
            )
        for j in range(start, self.cols, LANES):
            self.k.v(
                f"{FOLD[kind]}.rep",
                acc,
                acc,
                x[j],
                mask=min(LANES, self.cols - j),
                repeatTime=self.rows,
                **strides,
                src0RepStride=BLOCK,
                src1RepStride=row,
            )

    def _fold_wide(self, kind: str, acc: LocalRef, src: Val) -> None:
        """acc[row, 64], every row folded by one instruction that accumulates into the same 64 lanes."""
        self.clear(kind, acc)
        self.accumulate(kind, acc, src)

    def clear(self, kind: str, acc: LocalRef) -> None:
        """The neutral element in 64 lanes a row."""
        self.k.fill(acc, NEUTRAL[kind], binary("*", self.rows, LANES))

    def accumulate(self, kind: str, acc: LocalRef, src: Val) -> None:
        """Folds the rows of ``src`` into what ``acc`` already holds."""

        def emit(r: Scalar, j: Scalar, mask: Scalar, repeat: Scalar, down: bool) -> None:
            to = acc[binary("*", r, LANES)]
            self.k.v(
                f"{FOLD[kind]}.rep",
                to,
                self.part(src, r, j),
                to,
                mask=mask,
                repeatTime=repeat,
                dstBlkStride=1,
                src0BlkStride=1,
                src1BlkStride=1,
                dstRepStride=0,
                src0RepStride=BLOCK,
                src1RepStride=0,
            )

        self.walk(self.cols, emit)
