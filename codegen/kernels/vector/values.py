"""A vector program: what to compute on one tile of rows, as values in single assignment, before buffers are chosen.

A tile is R rows of C columns. A value has a form: ``full`` (one element a row and column), ``row`` (one a column, the
same for every row), ``col`` (one a row), ``block`` (a col with each element filling 32 bytes, which is how the vector
unit reads it against whole rows), ``double`` (a full of twice the columns) or ``one`` (a scalar read from device
memory). ``dtype`` is a kernel IR dtype or ``bits`` (one bit an element, what comparisons give).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from moec.codegen.scalar import Expr


@dataclass(frozen=True, eq=False, slots=True)
class Val:
    """A value; identity is the object itself. ``number`` counts in order of creation."""

    number: int
    form: str
    dtype: str

    def __repr__(self) -> str:
        return f"<%{self.number} {self.form} {self.dtype}>"


@dataclass(frozen=True, eq=False, slots=True)
class Scaled:
    """``factor`` times the scalar ``value`` (of form one)."""

    value: Val
    factor: float = 1.0


Number = float | int | Expr
"""A number known when the kernel is built, or a run-time scalar of it."""
Operand = Val | Number
Literal = Number | Scaled


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """``dst = name(srcs, params)``; names are those of moec.codegen.kernels.vector.tile."""

    name: str
    dst: Val
    srcs: tuple[Val, ...]
    params: Mapping[str, object] = field(default_factory=dict)

    def reads(self) -> tuple[Val, ...]:
        """Operands and the scalar parameters read from device memory."""
        return self.srcs + tuple(p.value for p in self.params.values() if isinstance(p, Scaled))


SCALAR_FORM = {"Add": "Adds", "Sub": "Adds", "Mul": "Muls", "Max": "Maxs", "Min": "Mins"}


class Values:
    """Builds a vector program. ``inputs`` are given values; ``outputs`` those that must exist at the end."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.inputs: list[Val] = []
        self.outputs: list[Val] = []
        self._count = 0
        self._blocks: dict[Val, Val] = {}

    def _new(self, form: str, dtype: str) -> Val:
        self._count += 1
        return Val(self._count, form, dtype)

    def input(self, form: str, dtype: str) -> Val:
        v = self._new(form, dtype)
        self.inputs.append(v)
        return v

    def emit(self, name: str, form: str, dtype: str, *srcs: Val, **params: object) -> Val:
        dst = self._new(form, dtype)
        self.steps.append(Step(name, dst, srcs, params))
        return dst

    # -- building blocks; everything is f32 or i32 unless said

    def unary(self, name: str, x: Val) -> Val:
        return self.emit(name, x.form, x.dtype, x)

    def scalar(self, name: str, x: Val, by: Literal) -> Val:
        """Adds, Muls, Maxs, Mins."""
        return self.emit(name, x.form, x.dtype, x, scalar=by)

    def fill(self, by: Literal, like: Val, dtype: str = "f32") -> Val:
        """A value of ``like``'s form holding one number."""
        return self.emit("Duplicate", like.form if like.form != "block" else "full", dtype, scalar=by)

    def cast(self, x: Val, dtype: str, mode: str = "") -> Val:
        """``x`` in another dtype (``x`` if same); ``mode`` of the vendor's RoundMode, default exact or nearest even."""
        if x.dtype == dtype and not mode:
            return x
        return self.emit("Cast", x.form, dtype, x, mode=mode)

    def spread(self, x: Val) -> Val:
        """A row or col as full."""
        if x.form == "full":
            return x
        return self.emit("Spread", "full", x.dtype, self.block(x) if x.form == "col" else x)

    def block(self, col: Val) -> Val:
        """A col with every element in a 32-byte block of its own."""
        if col not in self._blocks:
            self._blocks[col] = self.emit("Brcb", "block", col.dtype, col)
        return self._blocks[col]

    def binary(self, name: str, a: Operand, b: Operand) -> Operand:
        """Add, Sub, Mul, Div, Max, Min of any two forms or literals; literals fold in f32."""
        if not isinstance(a, Val) and not isinstance(b, Val):
            return _fold(name, a, b)
        if not isinstance(b, Val) or b.form == "one":
            assert isinstance(a, Val)
            if a.form == "one":
                a = self.emit("Duplicate", "full", a.dtype, scalar=Scaled(a))
            return self._by_scalar(name, a, b)
        if not isinstance(a, Val) or a.form == "one":
            return self._scalar_by(name, a, b)
        if a.form == b.form:
            return self.emit(name, a.form, a.dtype, a, b)
        a, b = (self.block(x) if x.form == "col" else x for x in (a, b))
        return self.emit(name, "full", a.dtype, a, b)

    def _by_scalar(self, name: str, a: Val, b: Operand) -> Val:
        if name == "Div":
            if isinstance(b, float) and b != 0 and np.frexp(b)[0] in (0.5, -0.5):
                return self.scalar("Muls", a, 1.0 / b)
            return self.emit("Div", a.form, a.dtype, a, self.fill(Scaled(b) if isinstance(b, Val) else b, a, a.dtype))
        if isinstance(b, Val):
            return self.scalar(SCALAR_FORM[name], a, Scaled(b, -1.0 if name == "Sub" else 1.0))
        return self.scalar(SCALAR_FORM[name], a, -1 * b if name == "Sub" else b)

    def _scalar_by(self, name: str, a: Operand, b: Val) -> Val:
        literal: Literal = Scaled(a) if isinstance(a, Val) else a
        if name == "Div":
            return self.emit("Div", b.form, b.dtype, self.fill(literal, b, b.dtype), b)
        if name == "Sub":
            return self.scalar("Adds", self.scalar("Muls", b, -1), literal)
        return self.scalar(SCALAR_FORM[name], b, literal)

    def add(self, a: Operand, b: Operand) -> Val:
        return _val(self.binary("Add", a, b))

    def sub(self, a: Operand, b: Operand) -> Val:
        return _val(self.binary("Sub", a, b))

    def mul(self, a: Operand, b: Operand) -> Val:
        return _val(self.binary("Mul", a, b))

    def div(self, a: Operand, b: Operand) -> Val:
        return _val(self.binary("Div", a, b))

    def max(self, a: Operand, b: Operand) -> Val:
        return _val(self.binary("Max", a, b))

    def min(self, a: Operand, b: Operand) -> Val:
        return _val(self.binary("Min", a, b))

    # -- rows

    def row_reduce(self, kind: str, x: Val) -> Val:
        """Sum, Max or Min of each row: a col."""
        return self.emit(f"Row{kind}", "col", x.dtype, self.spread(x))

    # -- bits

    def compare(self, mode: str, a: Val, b: Operand) -> Val:
        """Bits of a LT GT EQ LE GE NE b."""
        if isinstance(b, Val) and b.form != "one":
            if a.form != b.form:
                a, b = self.spread(a), self.spread(b)
            return self.emit("Compare", a.form, "bits", a, b, mode=mode)
        return self.emit("CompareScalar", a.form, "bits", a, scalar=Scaled(b) if isinstance(b, Val) else b, mode=mode)

    def select(self, bits: Val, a: Operand, b: Operand) -> Val:
        """a where the bit is set, else b."""
        if not isinstance(a, Val) or a.form == "one":
            a = self.fill(Scaled(a) if isinstance(a, Val) else a, bits)
        if bits.form == "full":
            a = self.spread(a)
        if not isinstance(b, Val) or b.form == "one":
            return self.emit("SelectScalar", a.form, a.dtype, bits, a, scalar=Scaled(b) if isinstance(b, Val) else b)
        if a.form != b.form:
            a, b = self.spread(a), self.spread(b)
        return self.emit("Select", a.form, a.dtype, bits, a, b)

    def logic(self, name: str, *bits: Val) -> Val:
        """And, Or, Not of bits."""
        return self.emit(name, bits[0].form, "bits", *bits)

    def live_steps(self) -> list[Step]:
        """The steps that the outputs need, in order."""
        needed = set(self.outputs)
        kept = []
        for s in reversed(self.steps):
            if s.dst in needed:
                kept.append(s)
                needed.update(s.reads())
        return kept[::-1]


def _val(x: Operand) -> Val:
    assert isinstance(x, Val)
    return x


def _fold(name: str, a: Number, b: Number) -> float:
    assert not isinstance(a, Expr) and not isinstance(b, Expr)
    x, y = np.float32(a), np.float32(b)
    with np.errstate(all="ignore"):
        fn = {
            "Add": np.add,
            "Sub": np.subtract,
            "Mul": np.multiply,
            "Div": np.divide,
            "Max": np.maximum,
            "Min": np.minimum,
        }
        return float(fn[name](x, y))
