"""The seam of a training graph: what forward keeps for backward, and where backward begins.

A node is backward exactly when it is reachable from a ``save``, a ``seed``, or a graph input that brings in a gradient.
"""

from __future__ import annotations

import numpy as np

from moec.ir.graph import Node, Value
from moec.ops.registry import op
from moec.ops.shapes import same_shape
from moec.ops.tape import Gradients, Tape, no_grad

Array = np.ndarray


@op("save(x: any, *, name: str) -> any")
class Save:
    """x, kept from forward until backward has read it. Each value is kept once; ``name`` is the save's own.

    The bytes of saved activations are those of all saves together.
    """

    dtype = "x"
    shape = staticmethod(same_shape)
    cost = "view"

    @staticmethod
    def ref(x: Array, *, name: str) -> Array:
        return x

    @staticmethod
    def grad(t: Tape, node: Node, *dys: Value | None) -> Gradients:
        return dys


@op("seed(loss: any, *, scale: float) -> any")
class Seed:
    """The gradient of ``scale`` times the loss with respect to the loss, one element: ``scale`` itself."""

    dtype = "loss"
    shape = staticmethod(same_shape)
    cost = "vector"
    grad = no_grad("it stands in a training graph already")

    @staticmethod
    def ref(loss: Array, *, scale: float) -> Array:
        return np.full_like(loss, scale)
