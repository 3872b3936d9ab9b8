"""Shape arithmetic that moves elements: the layout and indexing operators on tensors of dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.frontend.onnx.facts import Facts
from moec.frontend.onnx.shape_eval import LIMIT, Args, Content, axes_of, evaluates, first, number, present
from moec.ir.symbol import Dim, ceildiv


@evaluates("Unsqueeze")
def _unsqueeze(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x, axes = first(args), axes_of(args, attrs) or []
    return [Content(np.expand_dims(x.items, tuple(axes)), x.dtype)]


@evaluates("Squeeze")
def _squeeze(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x, axes = first(args), axes_of(args, attrs)
    return [Content(np.squeeze(x.items, None if axes is None else tuple(axes)), x.dtype)]


@evaluates("Reshape")
def _reshape(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x, shape = present(args)
    sizes = [number(d) for d in shape.items.flat]
    if not attrs.get("allowzero", 0):
        sizes = [x.items.shape[i] if d == 0 else d for i, d in enumerate(sizes)]
    return [Content(x.items.reshape(sizes), x.dtype)]


@evaluates("Flatten")
def _flatten(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x, axis = first(args), attrs.get("axis", 1)
    rows = int(np.prod(x.items.shape[:axis], dtype=int))
    return [Content(x.items.reshape(rows, -1 if rows else 0), x.dtype)]


@evaluates("Transpose")
def _transpose(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x = first(args)
    return [Content(np.transpose(x.items, attrs.get("perm")), x.dtype)]


@evaluates("Concat")
def _concat(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    parts = present(args)
    return [Content(np.concatenate([p.items for p in parts], attrs.get("axis", 1)), parts[0].dtype)]


@evaluates("Gather")
def _gather(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x, index = present(args)
    wanted = np.array([number(v) for v in index.items.flat], np.int64).reshape(index.items.shape)
    return [Content(np.asarray(np.take(x.items, wanted, attrs.get("axis", 0)), dtype=object), x.dtype)]


@evaluates("Slice")
def _slice(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x = first(args)
    if opset < 10:
        starts, ends, axes, steps = attrs["starts"], attrs["ends"], attrs.get("axes"), None
    else:
        starts, ends, axes, steps = (
            [number(v) for v in a.items.flat] if a is not None else None for a in [*args[1:], None, None][:4]
        )
    axes = list(axes) if axes is not None else list(range(len(starts)))
    index: list[slice] = [slice(None)] * x.items.ndim
    for i, axis in enumerate(axes):
        step = steps[i] if steps else 1
        end = None if step < 0 and ends[i] < -x.items.shape[axis] else ends[i]
        index[axis] = slice(starts[i], end, step)
    return [Content(x.items[tuple(index)], x.dtype)]


@evaluates("Split")
def _split(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x, axis = first(args), attrs.get("axis", 0)
    sizes = axes_of(args, {"axes": attrs.get("split")})
    if sizes is None:
        return None
    return [Content(p, x.dtype) for p in np.split(x.items, np.cumsum(sizes)[:-1], axis)]


@evaluates("Expand")
def _expand(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x, shape = present(args)
    sizes = [number(d) for d in shape.items.flat]
    if np.prod(sizes, dtype=float) * max(1, x.items.size) > LIMIT:
        return None
    return [Content(np.broadcast_to(x.items, np.broadcast_shapes(x.items.shape, tuple(sizes))), x.dtype)]


@evaluates("Tile")
def _tile(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    x, repeats = present(args)
    counts = [number(d) for d in repeats.items.flat]
    if np.prod(counts, dtype=float) * max(1, x.items.size) > LIMIT:
        return None
    return [Content(np.tile(x.items, counts), x.dtype)]


@evaluates("OneHot")
def _one_hot(args: Args, attrs: dict[str, Any], facts: Facts, opset: int) -> list[Content] | None:
    indices, depth, values = present(args)
    count, axis = number(depth.items.ravel()[0]), attrs.get("axis", -1)
    if count * max(1, indices.items.size) > LIMIT:
        return None
    off, on = values.items.ravel()
    hot = np.array([number(i) for i in indices.items.flat], np.int64).reshape(indices.items.shape) % count
    place = np.expand_dims(hot, axis) == np.arange(count).reshape((-1,) + (1,) * (hot.ndim - axis % (hot.ndim + 1)))
    items = np.empty(place.shape, dtype=object)
    items[...], items[place] = off, on
    return [Content(items, values.dtype)]


def split_sizes(size: Dim, parts: int) -> list[Dim]:
    """How Split with ``num_outputs`` cuts: equal chunks rounded up, the last one smaller."""
    chunk = ceildiv(size, parts)
    return [chunk] * (parts - 1) + [size - chunk * (parts - 1)]
