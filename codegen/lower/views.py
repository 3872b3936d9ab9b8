"""Ops that move nothing: constants, weights, saves, and reshapes of contiguous tensors."""

from __future__ import annotations

import numpy as np

from moec.codegen.lower.base import Lowering, lowering
from moec.ir.data import ArrayData
from moec.ir.graph import Node


@lowering("constant")
def constant(cx: Lowering, node: Node) -> None:
    data = node.attrs["value"]
    cx.constant(node, node.result.name or f"constant_{data.key[-12:]}", data)


@lowering("weight")
def weight(cx: Lowering, node: Node) -> None:
    cx.constant(node, node.attrs["name"], node.attrs["data"])


@lowering("save")
@lowering("after")
def save(cx: Lowering, node: Node) -> None:
    cx.alias(node.result, node.operand(0))


@lowering("seed")
def seed(cx: Lowering, node: Node) -> None:
    dtype = node.result.type.dtype
    number = np.full((1,) * node.result.type.rank, node.attrs["scale"]).astype(dtype.carrier)
    cx.constant(node, node.result.name or "seed", ArrayData(number, dtype))


@lowering("reshape")
def reshape(cx: Lowering, node: Node) -> None:
    cx.alias(node.result, node.operand(0))
