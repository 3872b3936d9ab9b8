"""What a mask says, as conditions on the positions of query and key, whatever arithmetic an exporter made it by.

A value means, at each index, a number: affine in the index, or one number or another by a condition; a bool value is
a condition. Everything that depends on inputs has no meaning here: such a mask stays an operand.
"""

from __future__ import annotations

from moec.ir.graph import Module, Node, Value
from moec.passes.effects import called
from moec.passes.recover_attention import meaning_arithmetic, meaning_layout
from moec.passes.recover_attention.conditions import (
    Meaning,
    parts,
)
from moec.passes.recover_attention.meanings import RULES

PARTS = 64
"""What takes more comparisons and cases than this to say is not followed."""

_LOADED = (meaning_arithmetic, meaning_layout)
"""Modules that register rules."""


class Masks:
    """Meanings of the values of a module, worked out when asked for.

    What a function is given means what all its callers give it, where they give it the same.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[Value, Meaning | None] = {}
        self._calls: dict[Value, list[Value | None]] | None = None

    def of(self, value: Value) -> Meaning | None:
        """What ``value`` means by its own axes; None where that depends on inputs or is not followed."""
        stack = [value]
        while stack:
            v = stack[-1]
            if v in self._known:
                stack.pop()
                continue
            node = v.producer
            if node is None:
                self._known[v] = None  # recursion ends here
                self._known[v] = self._given(v)
                continue
            if v.type.shape is None or node.op not in RULES:
                self._known[v] = None
                continue
            sources = _sources(node)
            missing = [o for o in sources if o not in self._known]
            if missing:
                stack.extend(missing)
                continue
            known = [self._known[o] for o in sources]
            found = None if None in known else RULES[node.op](node, [k for k in known if k is not None])
            self._known[v] = None if found is None or parts(found) > PARTS else found
        return self._known[value]

    def parameters(self, value: Value) -> list[Value]:
        """The function inputs that a value with a meaning is made of."""
        found: dict[Value, None] = {}
        stack, seen = [value], {value}
        while stack:
            v = stack.pop()
            if v.producer is None:
                found[v] = None
                continue
            fresh = [o for o in v.producer.operands if o is not None and o not in seen]
            seen.update(fresh)
            stack.extend(fresh)
        return list(found)

    def _given(self, parameter: Value) -> Meaning | None:
        """What every caller gives for a function's input."""
        if self._calls is None:
            self._calls = _arguments(self._module)
        arguments = self._calls.get(parameter, [])
        found = [None if a is None or a.type != parameter.type else self.of(a) for a in arguments]
        return found[0] if found and all(m == found[0] for m in found) else None


def _sources(node: Node) -> list[Value]:
    """The values whose meanings say what ``node`` means: its operands, or in place of indices side by side each."""
    sources = [o for o in node.operands if o is not None]
    if node.op != "gather_nd":
        return sources
    indices = sources[1].producer
    last = sources[1].type.rank - 1
    if indices is None or indices.op != "concat" or indices.attrs["axis"] != last:
        return sources
    columns = [o for o in indices.operands if o is not None]
    return [sources[0], *columns] if all(c.type.dims[-1] == 1 for c in columns) else sources


def _arguments(module: Module) -> dict[Value, list[Value | None]]:
    """For each input of a function, what it is given; None where that is done by something else than a call."""
    found: dict[Value, list[Value | None]] = {}
    for node in module.nodes():
        for name in called(node):
            inputs = module.functions[name].inputs
            operands = node.operands if node.op == "call" else [None] * len(inputs)
            for parameter, operand in zip(inputs, operands, strict=False):
                found.setdefault(parameter, []).append(operand)
    return found
