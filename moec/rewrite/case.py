"""Admissible sizes of a rule as text: ``x: [3, 5]; i: i64[4] in 0..3; perm = [1, 0]; eps = 1e-05``.

An operand is given by ``name: shape`` (of the swept dtype) or ``name: dtype[shape]``, optionally ``in low..high`` for
the range that test values are drawn from; an attribute by ``name = value`` in the spelling of the IR text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moec.ir.attrs import AttrReader
from moec.ir.types import TensorType, dtype

_OPERAND = re.compile(r"(\w+): ([a-z0-9]*)\[([^\]]*)\](?: in (-?[\d.]+)\.\.(-?[\d.]+))?")
_ATTR = re.compile(r"(\w+) = (.*)")


@dataclass(frozen=True)
class Case:
    """Sizes to try a rule with. ``operands``: name to (dtype name or "", shape, low, high)."""

    text: str
    operands: Mapping[str, tuple[str, tuple[int, ...], float | None, float | None]]
    attrs: Mapping[str, Any]

    def types(self, swept: str) -> dict[str, TensorType]:
        """The operands' types where ``swept`` stands for the dtype that is not said."""
        return {name: TensorType(dtype(d or swept), shape) for name, (d, shape, _, _) in self.operands.items()}

    def for_dtype(self, swept: str) -> dict[str, Any]:
        """The attributes, with the string ``swept`` standing for the swept dtype."""
        return {k: dtype(swept) if v == "swept" else v for k, v in self.attrs.items()}


def parse_case(text: str) -> Case:
    """The case that ``text`` spells; ValueError says which part cannot be read."""
    operands: dict[str, tuple[str, tuple[int, ...], float | None, float | None]] = {}
    attrs: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        if match := _OPERAND.fullmatch(part):
            name, kind, dims, low, high = match.groups()
            shape = tuple(int(d) for d in dims.split(",") if d.strip())
            operands[name] = (kind, shape, None if low is None else float(low), None if high is None else float(high))
        elif match := _ATTR.fullmatch(part):
            attrs[match[1]] = AttrReader(match[2], 0, {}).value()
        else:
            raise ValueError(f"not a case: '{part}' in '{text}'; parts are 'x: [3, 5]' or 'k = 2', with ';' between")
    return Case(text, operands, attrs)
