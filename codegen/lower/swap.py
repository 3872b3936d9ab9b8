"""Lowering of activations that are parked on the host: copies in the order of the program."""

from __future__ import annotations

from moec.codegen.lower.base import Lowering, lowering
from moec.ir.graph import Node


@lowering("swap_out")
def swap_out(cx: Lowering, node: Node) -> None:
    cx.copy(node, cx.parked(node), cx.tensor(node.operand(0)))


@lowering("swap_in")
def swap_in(cx: Lowering, node: Node) -> None:
    cx.copy(node, cx.result(node), cx.tensor(node.operand(0)))
