"""What nodes mean in masks: one rule an op, from what their operands mean."""

from __future__ import annotations

from collections.abc import Callable

from moec.ir.graph import Node
from moec.passes.recover_attention.conditions import (
    Affine,
    Meaning,
)

Rule = Callable[[Node, list[Meaning]], "Meaning | None"]
RULES: dict[str, Rule] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    def register(fn: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, fn))
        return fn

    return register


def affine(m: Meaning) -> Affine | None:
    if isinstance(m, float) and m.is_integer():
        return Affine(int(m))
    return m if isinstance(m, Affine) else None
