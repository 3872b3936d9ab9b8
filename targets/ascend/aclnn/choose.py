"""Which nodes of a layer become calls of the library: all that it offers, or those that the model says are faster."""

from __future__ import annotations

from collections.abc import Callable

from moec.codegen.lower.base import Lowering, node_name
from moec.codegen.operator_call import Choice
from moec.ir.graph import Module, Node
from moec.targets.ascend.aclnn.offer import NotOffered, Offer, offer

QUIET = ("constant", "weight", "save", "after", "seed", "reshape")
"""Ops that move nothing; nobody asks for a call."""


class Chooser:
    """Asked for each node; keeps what it answered. ``own_us`` prices moec's kernel of a node (None where there is none)
    and makes the choice one of time; without it every offer is taken.
    """

    def __init__(self, offer_us: Callable[[Offer], float], own_us: Callable[[Module, Node], float | None] | None):
        self.offer_us, self.own_us = offer_us, own_us
        self.choices: list[Choice] = []

    def __call__(self, cx: Lowering, node: Node) -> bool:
        if node.op in QUIET:
            return False
        try:
            made = offer(node, cx.module)
        except NotOffered as why:
            self.choices.append(Choice(node_name(node), (), "", str(why)))
            return False
        calls = tuple(call.function for call in made.calls)
        since = max((call.since for call in made.calls), default="")
        if self.own_us is None:
            self.choices.append(Choice(node_name(node), calls, since, "the library has it"))
            made.take(cx)
            return True
        theirs, own = self.offer_us(made), self.own_us(cx.module, node)
        taken = own is None or theirs < own
        reason = "no kernel of moec's" if own is None else "faster" if taken else "moec's kernel is faster"
        self.choices.append(
            Choice(node_name(node), calls if taken else (), since if taken else "", reason, theirs, own)
        )
        if taken:
            made.take(cx)
        return taken
