"""Rotary embedding by rotate-half: halves negated, swapped and put together again become one ``rope``.

``rope`` reads x once and writes the rotated halves where they belong, so neither the negated half nor the concatenation
is made. Backward likewise: the gradient is rotated by the negated sine table, its halves swapped. Exporters write the
backward of a slice as a scatter into zeros between transposes; that is first spelt as a ``pad``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moec.ir.graph import Module
from moec.ir.symbol import Dim
from moec.passes.base import Context, Result, register_pass
from moec.passes.price import PricedRulePass
from moec.passes.rotate_half_pads import PAD_RULES, pads_for_scatters
from moec.rewrite.rule import Rule, miss, near, rule
from moec.rewrite.term import T, Term, require

WIDE, NARROW = ("f32",), ("bf16", "f16")


def _rotate_half(backward: bool, narrow: bool) -> Rule:
    """x cos + rotate_half(x) sin, rotate_half(x) being (-second half, first half); or the gradient of that by x."""
    own = "axis = 2; start = 0; mid = 2; cut = 2; end = 4"
    tables = "; cos: {0}[3, 4]; sin: {0}[3, 4]"

    def of(x: str = "[2, 3, 4]", axes: str = own, table: str = tables, dtype: str = "") -> str:
        return f"x: {dtype}{x}{table.format(dtype)}; {axes}"

    other = "f32" if narrow else "bf16"
    thin = "; cos: {0}[3, 1]; sin: {0}[3, 1]"

    @rule(
        "rotate-half" + ("-grad" if backward else "") + ("-narrow" if narrow else ""),
        exactness="reassociated" if narrow else "exact",
        why="rope computes the same products and sums" + (", rounded once at the end" if narrow else ", bit for bit"),
        dtypes=NARROW if narrow else WIDE,
        operands={"x": "any", "cos": "any", "sin": "any"},
        cases=[of(), of(x="[3, 4]", axes=own.replace("axis = 2", "axis = 1"))],
        near=[
            near(
                "of 4 elements",
                of(x="[2, 4, 3]", axes=own.replace("= 2; s", "= 1; s"), table="; cos: {0}[4, 3]; sin: {0}[4, 3]"),
            ),
            near("[1:3] and [2:4]", of(axes=own.replace("cut = 2", "cut = 3").replace("start = 0", "start = 1"))),
            near("[0:1] and [1:4]", of(axes=own.replace("cut = 2", "cut = 1").replace("mid = 2", "mid = 1"))),
            near("one angle", of(table=thin)),
            near(f"computed in {other}", of(dtype=other)),
        ],
        escape="refuse",
    )
    def rotate_half(
        x: Term, cos: Term, sin: Term, *, axis: int, start: Dim, mid: Dim, cut: Dim, end: Dim
    ) -> Iterator[Any]:
        turned = x * sin if backward else x
        low = T.slice(turned, axis=axis, start=start, stop=cut, step=1)
        high = T.slice(turned, axis=axis, start=mid, stop=end, step=1)
        rotated = T.concat(high, -low, axis=axis) if backward else T.concat(-high, low, axis=axis)
        yield x * cos + (rotated if backward else rotated * sin)
        require(
            axis == x.rank - 1, f"the halves lie along {axis} of {x.rank} dimensions, of {x.shape[axis]} elements", x
        )
        width = x.shape[axis]
        halves = f"the halves are [{start}:{cut}] and [{mid}:{end}] of {width}"
        require(start == 0 and cut == mid and end == width, halves, x)
        require(mid + mid == width, halves, x)
        require(cos.shape[-1] == width == sin.shape[-1], f"all elements turn by one angle: cos is {cos.type}", cos)
        require(x.dtype.name in (NARROW if narrow else WIDE), f"the halves are computed in {x.dtype}", x)
        half = width // 2 if isinstance(width, int) else mid
        if backward:
            last = sin.rank - 1
            parts = [T.slice(sin, axis=last, start=a, stop=b, step=1) for a, b in ((half, width), (0, half))]
            sin = -T.concat(*parts, axis=last)
        yield T.rope(x, cos, sin, rotary_dim=width, layout="half")
        wrong = T.concat(high, low, axis=axis)
        yield miss("no half is negated", x * cos + (wrong if backward else wrong * sin))

    return rotate_half


ROTATE_HALF_RULES = [_rotate_half(backward, narrow) for backward in (False, True) for narrow in (False, True)]


@register_pass
class RotateHalfElim(PricedRulePass):
    """Spell rotate-half, forward and backward, as one ``rope`` without negated and concatenated halves.

    Forward it finds what ``recover-rope`` left; backward the gradient of it.
    """

    name = "rotate-half-elim"

    @classmethod
    def rules(cls) -> list[Rule]:
        return [*PAD_RULES, *ROTATE_HALF_RULES]

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        for graph in module.functions.values():
            pads_for_scatters(graph, result)
        self.run_priced(module, context, result)
        return result
