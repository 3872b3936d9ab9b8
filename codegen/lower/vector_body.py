"""Translates elementwise nodes, row reductions and norms of the layer IR into a vector program.

Numbers are computed in f32 (i32 for integers) and rounded to each node's dtype: the kernel rounds where the nodes do.
Integers of 64 bits are positions, sizes and ids: they are read and written whole and computed in 32 bits, so those that
are computed with lie within 2^31.
Conditions are bits; they become bytes only where they leave the kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from moec.codegen.kernels.vector import functions as fn
from moec.codegen.kernels.vector import small
from moec.codegen.kernels.vector.values import Number, Val, Values
from moec.codegen.lower.base import where
from moec.codegen.lower.vector_tables import (
    BINARY,
    COMPARE,
    EXACT,
    FLOATS,
    INTEGERS,
    ROUNDING,
    SMALL,
    UNARY,
    WHOLE,
    check_dtypes,
)
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node, Value
from moec.ir.types import DType

WHOLE_NUMBERS = (*INTEGERS, *SMALL)


@dataclass(eq=False)
class Operand:
    """A value of the body in the forms it exists in so far: as stored, as f32 or i32 numbers, as bits, or a literal."""

    dtype: DType
    native: Val | None = None
    work: Val | None = None
    bits: Val | None = None
    literal: float | None = None


class Body:
    """The vector program under construction and what each layer value became."""

    def __init__(self, cols: Number):
        self.values, self.cols = Values(), cols
        self.operands: dict[Value, Operand] = {}

    # -- operands

    def literal(self, value: Value, data: np.ndarray) -> None:
        """A constant of one element."""
        self.operands[value] = Operand(value.type.dtype, literal=float(data.reshape(-1)[0]))

    def input(self, value: Value, form: str) -> Val:
        """A tensor in device memory; scalars arrive in f32."""
        name = "u8" if value.type.dtype.name == "bool" else value.type.dtype.name
        if form == "one":
            native = self.values.input(form, "f32" if name in FLOATS else name)
            self.operands[value] = Operand(value.type.dtype, native, native)
        else:
            native = self.values.input(form, name)
            self.operands[value] = Operand(value.type.dtype, native)
        return native

    def work(self, value: Value) -> Val | Number:
        """Numbers to compute with: f32, or i32 for i32."""
        o = self.operands[value]
        if o.literal is not None:
            if o.dtype.is_int and not -(2**31) <= o.literal < 2**31:
                raise NoKernel(Problem(f"{o.literal:.0f} is past 32 bits, in which the vector unit computes"))
            return int(o.literal) if o.dtype.is_int else o.literal
        if o.work is None:
            if o.dtype.name == "bool":
                o.work = self.values.select(self.bits(value), 1.0, 0.0)
            elif o.dtype.name in SMALL:
                assert o.native is not None
                o.work = small.widened(self.values, o.native)
            else:
                assert o.native is not None
                whole = o.dtype.name in INTEGERS
                o.work = self.values.cast(
                    o.native, "i32" if whole else "f32", "NONE" if o.native.dtype == "i64" else ""
                )
        return o.work

    def bits(self, value: Value) -> Val:
        """A condition as bits."""
        o = self.operands[value]
        if o.bits is None:
            v = self.values
            if o.native is None:
                assert o.literal is not None
                raise ValueError("a literal condition")
            narrow = v.cast(o.native, "f16") if o.native.form != "one" else o.native
            wide = v.cast(narrow, "f32") if narrow.form != "one" else v.fill(_scaled(narrow), _full(narrow))
            o.bits = v.compare("NE", wide, 0.0)
        return o.bits

    def result(self, value: Value, form: str) -> Val:
        """``value`` as it is stored, in ``form`` (a literal or a narrower value is written whole)."""
        o, v = self.operands[value], self.values
        name = "u8" if o.dtype.name == "bool" else o.dtype.name
        if o.native is not None and o.native.form == form and o.native not in v.inputs:
            return o.native
        if o.dtype.name == "bool":
            numbers = v.select(self.bits(value), 1.0, 0.0)
            return v.cast(v.cast(self._shaped(numbers, form), "f16"), "u8")
        work = self.work(value)
        if not isinstance(work, Val) or work.form == "one":
            like = Val(0, form, "f32")
            work = v.fill(
                _scaled(work) if isinstance(work, Val) else work, like, "i32" if name in WHOLE_NUMBERS else "f32"
            )
        shaped = self._shaped(work, form)
        if name in SMALL:
            return small.narrowed(v, shaped, name)
        if shaped in v.inputs:
            shaped = v.scalar("Muls", shaped, 1)
        return v.cast(shaped, name)

    def _shaped(self, x: Val, form: str) -> Val:
        return self.values.spread(x) if form == "full" else x

    def _define(self, node: Node, work: Val | Number, exact: bool = False) -> None:
        """The node's result, rounded to its dtype."""
        dtype, v = node.result.type.dtype, self.values
        if isinstance(work, Val) and dtype.name in ("f16", "bf16"):
            native = v.cast(work, dtype.name)
            self.operands[node.result] = Operand(dtype, native, work if exact else None)
        elif isinstance(work, Val):
            self.operands[node.result] = Operand(dtype, work if dtype.name in ("f32", "i32") else None, work)
        else:
            assert isinstance(work, (int, float))
            rounded = float(np.asarray(work, np.float64).astype(dtype.carrier))
            self.operands[node.result] = Operand(dtype, literal=rounded)

    def _condition(self, node: Node, bits: Val) -> None:
        self.operands[node.result] = Operand(node.result.type.dtype, bits=bits)

    # -- nodes

    def node(self, node: Node) -> None:
        """Adds what ``node`` computes; NoKernel where the vector unit cannot."""
        op = node.op
        if op == "constant":
            self.literal(node.result, node.attrs["value"].numpy())
            return
        check_dtypes(node)
        handler = {
            "cast": self._cast,
            "select": self._select,
            "not": self._logic,
            "and": self._logic,
            "or": self._logic,
            "xor": self._logic,
            "gelu": self._gelu,
            "pow": self._pow,
            "softmax": self._softmax,
            "log_softmax": self._softmax,
            "rms_norm": self._norm,
            "layer_norm": self._norm,
            "is_nan": self._is_nan,
            "is_inf": self._is_inf,
            "expand": self._expand,
        }.get(op)
        if handler is not None:
            handler(node)
        elif op in WHOLE and node.result.type.dtype.name in INTEGERS:
            self._define(node, WHOLE[op](self.values, *self._whole(node), **_attributes(node)), True)
        elif op == "mod":
            why = "the vector unit has no exact remainder; integers have one"
            raise NoKernel(Problem("mod of floats has no vector kernel", where(node), why))
        elif op in BINARY:
            a, b = self.work(node.operand(0)), self.work(node.operand(1))
            self._define(node, self.values.binary(BINARY[op], a, b), op in EXACT)
        elif op in COMPARE:
            self._compare(node)
        elif op in ROUNDING:
            x = self._tensor(node, 0)
            self._define(node, self.values.cast(x, "f32", ROUNDING[op]), True)
        elif op in UNARY:
            self._define(node, UNARY[op](self.values, self._tensor(node, 0)), op in EXACT)
        elif op.startswith("reduce_"):
            self._reduce(node)
        else:
            raise NoKernel(Problem(f"op '{op}' has no vector kernel", where(node)))

    def _tensor(self, node: Node, index: int) -> Val:
        """Operand ``index`` as numbers in memory."""
        x = self.work(node.operand(index))
        if isinstance(x, Val) and x.form != "one":
            return x
        like = Val(0, "col", "f32")
        return self.values.fill(_scaled(x) if isinstance(x, Val) else x, like)

    def _whole(self, node: Node) -> list[Val]:
        """The operands as i32 numbers in memory."""
        found = [self.work(x) for x in node.operands if x is not None]
        like = next((x for x in found if isinstance(x, Val) and x.form != "one"), Val(0, "col", "i32"))
        return [
            x if isinstance(x, Val) and x.form != "one" else self.values.fill(_literal(x), like, "i32") for x in found
        ]

    def _compare(self, node: Node) -> None:
        v, mode = self.values, COMPARE[node.op]
        a, b = self.work(node.operand(0)), self.work(node.operand(1))
        if node.operand(0).type.dtype.name in WHOLE_NUMBERS:
            difference = v.binary("Sub", a, b)
            assert isinstance(difference, Val)
            sign = v.scalar("Mins", v.scalar("Maxs", difference, -1), 1)
            self._condition(node, v.compare(mode, v.cast(sign, "f32"), 0.0))
            return
        if not isinstance(a, Val) or a.form == "one":
            swapped = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(mode, mode)
            self._condition(node, v.compare(swapped, self._tensor(node, 1), a))
        else:
            self._condition(node, v.compare(mode, a, b))

    def _logic(self, node: Node) -> None:
        v = self.values
        bits = [self.bits(x) for x in node.operands if x is not None]
        if len({b.form for b in bits}) > 1:
            bits = [self._wide(b) for b in bits]
        if node.op == "xor":
            either, both = v.logic("Or", *bits), v.logic("And", *bits)
            self._condition(node, v.logic("And", either, v.logic("Not", both)))
        else:
            self._condition(node, v.logic({"not": "Not", "and": "And", "or": "Or"}[node.op], *bits))

    def _wide(self, bits: Val) -> Val:
        """A condition of each element of the tile."""
        v = self.values
        return bits if bits.form == "full" else v.compare("NE", v.spread(v.select(bits, 1.0, 0.0)), 0.0)

    def _select(self, node: Node) -> None:
        v = self.values
        if node.result.type.dtype.name == "bool":
            self._choose(node)
            return
        a, b = self.work(node.operand(1)), self.work(node.operand(2))
        bits = self.bits(node.operand(0))
        full = "full" in {x.form for x in (bits, a, b) if isinstance(x, Val)}
        if full:
            bits = self._wide(bits)
        if node.result.type.dtype.is_int:
            like = Val(0, bits.form, "i32")
            a, b = (x if isinstance(x, Val) and x.form != "one" else v.fill(_literal(x), like, "i32") for x in (a, b))
        self._define(node, v.select(bits, a, b), True)

    def _choose(self, node: Node) -> None:
        """One of two conditions: numbers are chosen, and compared with 0."""
        v, bits = self.values, self.bits(node.operand(0))
        a, b = self.work(node.operand(1)), self.work(node.operand(2))
        full = "full" in {x.form for x in (bits, a, b) if isinstance(x, Val)}
        if full:
            bits = self._wide(bits)
        self._condition(node, v.compare("NE", v.select(bits, a, b), 0.0))

    def _cast(self, node: Node) -> None:
        source, to = node.operand(0), node.attrs["to"]
        v, o = self.values, self.operands[source]
        if o.dtype is to:
            self.operands[node.result] = o
        elif o.dtype.name == "i64" and o.native is not None and to.name in (*FLOATS, "bool"):
            wide = v.cast(o.native, "f32", "RINT")
            if to.name == "bool":
                self._condition(node, v.compare("NE", wide, 0.0))
            else:
                self._define(node, wide)
        elif to.name == "i64" and o.dtype.name in FLOATS:
            self.operands[node.result] = Operand(to, v.cast(self._tensor(node, 0), "i64", "TRUNC"))
        elif to.name == "bool":
            x = self._tensor(node, 0)
            self._condition(node, v.compare("NE", v.cast(x, "f32") if x.dtype == "i32" else x, 0.0))
        elif to.name in FLOATS:
            y = self.work(source)
            if isinstance(y, Val) and y.dtype == "i32":
                y = v.cast(y, "f32", "RINT")
            widening = o.dtype.name in FLOATS and to.name == "f32"
            self._define(node, y, exact=widening or o.dtype.name == "bool")
        else:
            x = self._tensor(node, 0)
            self._define(node, x if x.dtype == "i32" else v.cast(x, "i32", "TRUNC"))

    def _expand(self, node: Node) -> None:
        x = self.work(node.operand(0))
        if node.result.type.dtype.name == "bool":
            assert isinstance(x, Val)
            self._condition(node, self.values.compare("NE", self.values.spread(x), 0.0))
        else:
            self._define(node, x, True)

    def _gelu(self, node: Node) -> None:
        f = fn.gelu_tanh if node.attrs["approximate"] == "tanh" else fn.gelu
        self._define(node, f(self.values, self._tensor(node, 0)))

    def _pow(self, node: Node) -> None:
        v, power = self.values, self.operands[node.operand(1)].literal
        base = self.operands[node.operand(0)].literal
        if power is None and base is not None and base > 0:  # e^(y ln base); ln rounds once, in f64
            self._define(node, v.unary("Exp", v.scalar("Muls", self._tensor(node, 1), math.log(base))))
            return
        x = self._tensor(node, 0)
        if power == 2:
            self._define(node, v.mul(x, x))
        elif power == 3:
            self._define(node, v.mul(v.mul(x, x), x))
        elif power == 0.5:
            self._define(node, v.unary("Sqrt", x))
        elif power == -0.5:
            self._define(node, fn.rsqrt(v, x))
        elif power == -1:
            self._define(node, v.div(1.0, x))
        elif power == 1:
            self._define(node, x)
        else:
            what = f"pow with exponent {'of a tensor' if power is None else power} has no vector kernel"
            raise NoKernel(Problem(what, where(node), "exponents 1, 2, 3, 0.5, -0.5 and -1 have one"))

    def _is_nan(self, node: Node) -> None:
        x = self._tensor(node, 0)
        self._condition(node, self.values.compare("NE", x, x))

    def _is_inf(self, node: Node) -> None:
        self._condition(node, self.values.compare("EQ", self.values.unary("Abs", self._tensor(node, 0)), float("inf")))

    def _reduce(self, node: Node) -> None:
        x, v = self._tensor(node, 0), self.values
        kind = {"reduce_sum": "Sum", "reduce_mean": "Sum", "reduce_max": "Max", "reduce_min": "Min"}.get(node.op)
        if kind is None or node.attrs["axes"] != (node.operand(0).type.rank - 1,):
            what = f"{node.op} over dimensions {list(node.attrs['axes'])} has no vector kernel"
            raise NoKernel(Problem(what, where(node), "sums, means, maxima and minima over the last dim have one"))
        y = fn.mean(v, x, self.cols) if node.op == "reduce_mean" else v.row_reduce(kind, x)
        self._define(node, y, kind in ("Max", "Min"))

    def _softmax(self, node: Node) -> None:
        self._last_axis(node, node.attrs["axis"])
        f = fn.softmax if node.op == "softmax" else fn.log_softmax
        self._define(node, f(self.values, self._tensor(node, 0)))

    def _norm(self, node: Node) -> None:
        x, v = self._tensor(node, 0), self.values
        parts = [None if o is None else self._tensor(node, i) for i, o in enumerate(node.operands) if i]
        parts += [None] * (2 - len(parts))
        if node.op == "rms_norm":
            self._define(node, fn.rms_norm(v, x, parts[0], node.attrs["eps"], self.cols))
        else:
            self._last_axis(node, node.attrs["axis"])
            self._define(node, fn.layer_norm(v, x, parts[0], parts[1], node.attrs["eps"], self.cols))

    def _last_axis(self, node: Node, axis: int) -> None:
        if axis != node.operand(0).type.rank - 1:
            what = f"{node.op} over dimension {axis} of {node.operand(0).type.rank} has no vector kernel"
            raise NoKernel(Problem(what, where(node), "transpose so that it is the last"))


def _attributes(node: Node) -> dict[str, Any]:
    """Those that a function of integers takes."""
    return {"fmod": node.attrs["fmod"]} if node.op == "mod" else {}


def _literal(x: Val | Number) -> Any:
    return _scaled(x) if isinstance(x, Val) else x


def _scaled(x: Val) -> Any:
    from moec.codegen.kernels.vector.values import Scaled

    return Scaled(x)


def _full(x: Val) -> Val:
    return Val(0, "full", x.dtype)
