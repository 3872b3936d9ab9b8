"""Vector programs inside a hand-written kernel: given values have their places, others share buffers between stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import Buffer, LocalRef
from moec.codegen.kernels.vector.plan import FOLD_POOL, Plan, Pool, bits_of, make_plan, pool_of
from moec.codegen.kernels.vector.tile import BLOCK, LANES, Tile
from moec.codegen.kernels.vector.values import Step, Val, Values
from moec.codegen.scalar import Scalar, Var, align, binary

BUFFER_DTYPE = {1: "u8", 8: "u8", 16: "f16", 32: "f32", 64: "i64"}


class Scratch:
    """Buffers that the stages of one kernel use in turn, as many of each size as the hungriest stage wants."""

    def __init__(self, k: KernelBuilder):
        self.k = k
        self.buffers: dict[tuple[Pool, int], list[Buffer]] = {}

    def get(self, pool: Pool, elems: int, index: int) -> Buffer:
        """Buffer ``index`` of ``elems`` elements for a pool."""
        have = self.buffers.setdefault((pool, elems), [])
        while len(have) <= index:
            size = -(-elems // 8) if pool[1] == 1 else elems
            have.append(self.k.ub(f"{pool[0]}{pool[1]}_{len(have)}", BUFFER_DTYPE[pool[1]], size))
        return have[index]


class Stage:
    """One vector program over up to ``rows`` rows of ``pitch`` columns, ``cols`` of them valid."""

    def __init__(
        self,
        scratch: Scratch,
        values: Values,
        places: Mapping[Val, Buffer | LocalRef],
        rows: int,
        cols: int,
        pitch: int,
    ):
        self.k, self.values, self.places = scratch.k, values, dict(places)
        self.cols, self.pitch = cols, pitch
        self.steps: Sequence[Step] = values.live_steps()
        folds = cols > LANES
        self.plan: Plan = make_plan(self.steps, frozenset(self.places), frozenset(), folds)
        cap = -(-rows // LANES) * LANES
        self.elems = {
            "full": rows * pitch,
            "double": 2 * rows * pitch,
            "row": pitch,
            "col": cap,
            "block": -(-rows // BLOCK) * BLOCK * BLOCK,
            "lanes": rows * LANES,
        }
        self.slots: dict[Val, LocalRef] = {}
        for v, i in self.plan.slot.items():
            pool = pool_of(v)
            ref = scratch.get(pool, self.elems[v.form], i)[0]
            self.slots[v] = ref.cast("u8" if v.dtype == "bits" else v.dtype)
        self.folds = {s: scratch.get(FOLD_POOL, self.elems["lanes"], i)[0] for s, i in self.plan.scratch.items()}

    def fill_cols(self, done: set[str]) -> None:
        """Writes once the buffers of row reductions that later steps read further than the reductions write."""
        read = {v for s in self.steps for v in s.srcs}
        for s in self.steps:
            if s.name.startswith("Row") and s.dst in read:
                ref = self.slots[s.dst]
                if ref.buffer not in done:
                    done.add(ref.buffer)
                    self.k.fill(ref, 0.0, self.elems["col"])

    def emit(self, rows: Scalar, slot: Scalar = 0) -> None:
        """The steps on ``rows`` rows, double-buffered places at ``slot``."""

        def place(v: Val) -> LocalRef:
            if v not in self.places:
                return self.slots[v]
            p = self.places[v]
            return p[slot if p.slots > 1 else 0] if isinstance(p, Buffer) else p

        def no_scalars(v: Val) -> Var:
            raise ValueError("a stage reads no scalars of device memory")

        tile = Tile(
            self.k,
            rows,
            self.cols,
            self.pitch,
            self.pitch,
            binary("*", rows, self.pitch),
            align(rows, LANES),
            True,
            place,
            no_scalars,
            lambda s: self.folds[s],
        )
        for s in self.steps:
            tile.emit(s)


__all__ = ["Scratch", "Stage", "bits_of"]
