"""Constant arrays in masks: positions along an axis, and two numbers parted by diagonals."""

from __future__ import annotations

import numpy as np

from moec.passes.recover_attention.conditions import Affine, Case, Condition, Meaning, both, triangle


def table(array: np.ndarray) -> Meaning | None:
    """The meaning of a constant array: one number, equal steps along one axis, or one number within a band of
    diagonals and another outside.
    """
    if not array.size or array.dtype.kind not in "biuf":
        return None
    if np.all(array == array.flat[0]):
        return bool(array.flat[0]) if array.dtype.kind == "b" else float(array.flat[0])
    if array.size == max(array.shape) and array.dtype.kind in "iu":
        flat = array.ravel().astype(np.int64)
        step = int(flat[1] - flat[0])
        if np.array_equal(flat, flat[0] + step * np.arange(flat.size)):
            return Affine(int(flat[0]), ((int(np.argmax(array.shape)), step),))
    if array.ndim < 2:
        return None
    planes = array.reshape(-1, *array.shape[-2:])
    plane = planes[0]
    if not np.all(planes == plane):
        return None
    numbers = np.unique(plane)
    if len(numbers) != 2:
        return None
    for inside, outside in (numbers[::-1], numbers):
        when = _band(plane == inside, array.ndim)
        if when is not None:
            if array.dtype.kind != "b":
                return Case(when, float(inside), float(outside))
            if inside:
                return when
    return None


def _band(marks: np.ndarray, rank: int) -> Condition | None:
    """The condition on query and key for ``marks`` [queries, keys] that lie between two diagonals."""
    queries, keys = marks.shape
    rows = np.flatnonzero(marks.any(axis=1))
    first = np.argmax(marks[rows], axis=1)
    last = keys - 1 - np.argmax(marks[rows, ::-1], axis=1)
    cut_above, cut_below = rows[last < keys - 1], rows[first > 0]
    when: Condition = True
    position, key = np.arange(queries)[:, None], np.arange(keys)[None, :]
    expected = np.ones_like(marks)
    if len(cut_above):
        k = int(last[last < keys - 1][0] - cut_above[0])
        when, expected = both(when, triangle(False, k, rank)), expected & (key <= position + k)
    if len(cut_below):
        k = int(first[first > 0][0] - cut_below[0])
        when, expected = both(when, triangle(True, k, rank)), expected & (key >= position + k)
    return when if np.array_equal(expected, marks) else None
