"""Tensors in fewer bytes for a transfer: two of four elements kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Shape, exact_div
from moec.ops.index import stable_argsort
from moec.ops.registry import Types, op
from moec.ops.shapes import known

Array = np.ndarray
GROUP, KEPT = 4, 2


@op("sparse24(x: [S, H]) -> (values: any, places: any)")
class Sparse24:
    """Of every four elements of a row the two of largest magnitude (of equals the earlier): values [S, H/2] in order,
    and places [S, H/8] u8, four bits a group: the first's place, then the second's, the earlier group in the lower
    bits.

    What is left out has at most half of the group's sum of squares, so |x - dense24(sparse24(x))| <= |x| / sqrt(2) in
    the Euclidean norm, of every row and of the whole; each element left out is at most as large as both kept. H is a
    multiple of 8.
    """

    dtype = ("x", "!u8")
    cost = "vector"
    nondiff = "a form of transfer for gradients"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        rows, width = known(types)[0].dims
        halves, bytes_ = exact_div(width, 2), exact_div(width, 8)
        if halves is None or bytes_ is None:
            raise ValueError(f"rows of {width} do not split into pairs of four elements")
        return [(rows, halves), (rows, bytes_)]

    @staticmethod
    def ref(x: Array) -> tuple[Array, Array]:
        groups = x.reshape(x.shape[0], -1, GROUP)
        kept = np.sort(stable_argsort(np.abs(groups), 2, True)[..., :KEPT], axis=2)
        values = np.take_along_axis(groups, kept, axis=2).reshape(x.shape[0], -1)
        codes = (kept[..., 0] | kept[..., 1] << 2).reshape(x.shape[0], -1, 2)
        return values, (codes[..., 0] | codes[..., 1] << 4).astype(np.uint8)


@op("dense24(values: [S, C], places: [S, D]) -> any")
class Dense24:
    """What ``sparse24`` took apart, with zeros in the places of what it left out: [S, 2 C], D being C / 4."""

    dtype = "values"
    cost = "vector"
    nondiff = "a form of transfer for gradients"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        values, places = known(types)
        (rows, width), (_, bytes_) = values.dims, places.dims
        if places.dtype.name != "u8" or bytes_ * 4 != width:
            raise ValueError(f"places of {values} are u8[{rows}, {exact_div(width, 4)}], not {places}")
        return [(rows, width * 2)]

    @staticmethod
    def ref(values: Array, places: Array) -> Array:
        codes = np.stack([places & 15, places >> 4], axis=2).reshape(places.shape[0], -1)
        kept = np.stack([codes & 3, codes >> 2], axis=2).astype(np.int64)
        out = np.zeros((*codes.shape, GROUP), values.dtype)
        np.put_along_axis(out, kept, values.reshape(*codes.shape, KEPT), axis=2)
        return out.reshape(values.shape[0], -1)
