"""Activations that do not stay: computed again in backward, or parked on the host in between.

``after`` is the edge that orders such work: it holds a value back until backward has come far enough, so that nothing
is made or copied back too early, and what is computed again is never merged with the first time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Shape
from moec.ops.registry import Types, op
from moec.ops.shapes import same_shape
from moec.ops.tape import no_grad

Array = np.ndarray
_JOINT = "it stands in a training graph already"


def _first(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
    return same_shape(types[:1], attrs)


@op("after(x: any, trigger?: any) -> any")
class After:
    """x, not before ``trigger`` is there."""

    dtype = "x"
    shape = staticmethod(_first)
    cost = "view"
    grad = no_grad(_JOINT)

    @staticmethod
    def ref(x: Array, trigger: Array | None = None) -> Array:
        return x


@op("swap_out(x: any, *, name: str) -> any")
class SwapOut:
    """x copied to the host by the copy stream; its place on the device is free once the copy has ended and forward no
    longer reads it.
    """

    dtype = "x"
    shape = staticmethod(same_shape)
    cost = "copy"
    grad = no_grad(_JOINT)

    @staticmethod
    def ref(x: Array, *, name: str) -> Array:
        return x


@op("swap_in(x: any, trigger?: any) -> any")
class SwapIn:
    """What ``swap_out`` parked, copied back by the copy stream; issued once ``trigger`` is there."""

    dtype = "x"
    shape = staticmethod(_first)
    cost = "copy"
    host_operands = ("x",)
    grad = no_grad(_JOINT)

    @staticmethod
    def ref(x: Array, trigger: Array | None = None) -> Array:
        return x
