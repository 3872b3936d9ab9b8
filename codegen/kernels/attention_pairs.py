"""Which pairs of a tile of queries and a tile of keys attention's gradient visits, and in what order."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.attention import work_of
from moec.codegen.kernels.attention_packed import Packed
from moec.codegen.kernels.attention_tile import Attention, Tile
from moec.codegen.scalar import Scalar, ceildiv, smax, smin


@dataclass(frozen=True, slots=True)
class Outer:
    """What a group keeps its sums of: ``pairs`` of it, one after the other."""

    batch: Scalar
    kv_head: Scalar
    pairs: Scalar
    fixed: Scalar  # head (by queries) or heads' pairs each (by keys)
    row: Scalar  # first row of the tile, or of the first pair
    rows: Scalar  # of the tile; by keys: all queries up to the last that sees the tile
    key: Scalar
    keys: Scalar


@dataclass(frozen=True, slots=True)
class Pair:
    """A tile of queries of one head and a tile of keys."""

    batch: Scalar
    head: Scalar
    kv_head: Scalar
    row: Scalar
    rows: Scalar
    key: Scalar
    keys: Scalar


class Walk:
    """Which pairs a group visits."""

    def __init__(self, k: KernelBuilder, a: Attention, t: Tile, by_keys: bool, packed: Packed | None):
        self.k, self.a, self.t, self.by_keys, self.packed = k, a, t, by_keys, packed

    @property
    def total(self) -> Scalar:
        a, t = self.a, self.t
        if self.by_keys:
            return ceildiv(a.keys, t.keys) * a.batch * a.kv_heads
        return ceildiv(a.queries, t.rows) * a.batch * a.heads

    def outer(self, number: Scalar) -> Outer:
        k, a, t = self.k, self.a, self.t
        if not self.by_keys:
            w = work_of(k, a, t, number, self.packed)
            return Outer(w.batch, w.kv_head, w.tiles, w.head, w.row, w.rows, w.first * t.keys, w.end)
        pair = k.let("pair", number % (a.batch * a.kv_heads))
        key = k.let("key", number // (a.batch * a.kv_heads) * t.keys)
        keys = k.let("keys", smin(t.keys, a.keys - key))
        first: Scalar = 0
        last: Scalar = a.queries
        if a.causal:  # queries that stand at the first key or later
            first = k.let("firstTile", smax(0, key - a.offset) // t.rows)
        if a.window is not None:  # and not further on than the window reaches from the last
            last = k.let("lastRow", smax(0, smin(a.queries, key + keys - 1 + a.window - a.offset)))
        if self.packed is not None:  # no query of another sequence than those of the tile's keys
            behind = k.read("behind", self.packed.after[key + keys - 1])
            last = k.let("lastOwn", smin(last, a.queries - behind))
            first = k.let("firstOwn", smax(first, k.read("start", self.packed.first[key]) // t.rows))
        each = k.let("tilesEach", ceildiv(smax(0, last - first * t.rows), t.rows))
        share = a.heads // a.kv_heads
        batch, head = k.let("batch", pair // a.kv_heads), k.let("kvHead", pair % a.kv_heads)
        return Outer(batch, head, each * share, each, first * t.rows, last, key, keys)

    def pair(self, o: Outer, i: Scalar, name: str) -> Pair:
        """The ``i``-th pair; ``name`` tells its variables from another pair's."""
        k, a, t = self.k, self.a, self.t
        if not self.by_keys:
            key = k.let(f"key{name}", o.key + i * t.keys)
            keys = k.let(f"keys{name}", smin(t.keys, o.keys - key))
            return Pair(o.batch, o.fixed, o.kv_head, o.row, o.rows, key, keys)
        head = k.let(f"head{name}", o.kv_head * (a.heads // a.kv_heads) + i // o.fixed)
        row = k.let(f"row{name}", o.row + i % o.fixed * t.rows)
        rows = k.let(f"rows{name}", smin(t.rows, o.rows - row))
        return Pair(o.batch, head, o.kv_head, row, rows, o.key, o.keys)
