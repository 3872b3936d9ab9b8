"""Ops that move nothing: constants, weights, and reshapes of contiguous tensors."""

from __future__ import annotations

from moec.codegen.lower.base import Lowering, lowering
from moec.ir.graph import Node


@lowering("constant")
def constant(cx: Lowering, node: Node) -> None:
    data = node.attrs["value"]
    cx.constant(node, node.result.name or f"constant_{data.key[-12:]}", data)


@lowering("weight")
def weight(cx: Lowering, node: Node) -> None:
    cx.constant(node, node.attrs["name"], node.attrs["data"])


@lowering("reshape")
def reshape(cx: Lowering, node: Node) -> None:
    cx.alias(node.result, node.operand(0))
