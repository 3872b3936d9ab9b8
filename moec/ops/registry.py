"""Ops, each declared once: ``@op(signature)`` on a class that says everything about it.

The class has a docstring with the formula, and as attributes or static functions:

- ``dtype``: the results' dtype: an operand name (``"x"``), a dtype name (``"!i64"``), an attribute name (``"=to"``),
  a tuple of these
  (one a result), or a function ``(types, attrs) -> DType or list``.
- ``shape(types, attrs) -> list of shapes``: only where the signature does not say it. ``types`` is the list of
  operand types
  (None where absent). Raises ValueError with the reason where the operands do not fit.
- ``ref(*operands, **attrs)``: the numpy reference. Floats arrive in the compute dtype (16-bit ones up-cast to f32;
  f64 in fp64 mode); the result is
  rounded to the declared dtype by the caller, once. Dimensions among the attributes arrive as numbers. Several
  results: a tuple.
- ``cost``: ``"view"``, ``"vector"``, ``"cube"``, ``"copy"``, ``"scalar"``, ``"comm"`` (between ranks), ``"host"`` or
  ``"composite"`` (expanded before lowering).
- ``onnx``: the standard operator that it is spelt as, or None where export writes a function.
- ``traits``: of ``elementwise commutative view idempotent index region``; ``effect`` for what may not be dropped,
  merged or reordered with its like; ``collective`` where ``ref`` takes and gives a list over the ranks of a group.
- ``place``: where it runs, ``"device"`` (the default) or ``"host"``; ``host_operands`` names operands that may lie on
  the host though it runs on the device.
- ``binds``: an attribute, a dimension that is known to be the result once the op has run.
- ``grad`` (see ``moec.ops.tape``) or ``nondiff``: why no gradient goes through it. A composite op's reason says why it
  cannot be differentiated as it is, so a graph that needs its gradient is refused.
- ``masks``: operands that nobody trains as a rule: inputs that they are computed from are not differentiated for unless
  they are named.
- ``training_form``: the op, of the same operands, attributes and first results, that forward runs in training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moec.diagnostics import suggest
from moec.ir.symbol import Shape
from moec.ir.types import DTYPES, DType, TensorType
from moec.ops.signature import MISSING, Operand, Signature, build_shape, match_shape, parse_signature, pattern_text

Types = Sequence[TensorType | None]
COSTS = ("view", "vector", "cube", "copy", "scalar", "comm", "host", "composite")
PLACES = ("device", "host")


class OpDef:
    """One op's declaration; see the module's docstring for the fields."""

    def __init__(self, signature: Signature, body: type):
        self.signature = signature
        self.name = signature.name
        self.doc = (body.__doc__ or "").strip()
        self.dtype_rule: Any = body.__dict__.get("dtype")
        self.shape_rule: Callable[[Types, dict[str, Any]], list[Shape | None]] | None = getattr(body, "shape", None)
        self.ref: Callable[..., Any] = getattr(body, "ref", None)  # type: ignore[assignment]
        self.cost: str = getattr(body, "cost", "")
        self.onnx: str | None = getattr(body, "onnx", None)
        self.traits: frozenset[str] = frozenset(getattr(body, "traits", ()))
        self.place: str = getattr(body, "place", "device")
        self.host_operands: tuple[str, ...] = getattr(body, "host_operands", ())
        self.binds: str = getattr(body, "binds", "")
        self.grad: Callable[..., Any] | None = getattr(body, "grad", None)
        self.nondiff: str = getattr(body, "nondiff", "")
        self.training_form: str = getattr(body, "training_form", "")
        self.masks: tuple[str, ...] = getattr(body, "masks", ())
        self.attrs = {a.name: a for a in signature.attrs}
        self._check()

    def _check(self) -> None:
        missing = [f for f in ("doc", "dtype_rule", "ref") if not getattr(self, f)]
        if self.place not in PLACES:
            raise TypeError(f"op {self.name}: place is one of {', '.join(PLACES)}")
        if missing or self.cost not in COSTS:
            raise TypeError(f"op {self.name}: declare {', '.join(missing) or 'cost as one of ' + ', '.join(COSTS)}")
        if isinstance(self.dtype_rule, staticmethod):
            self.dtype_rule = self.dtype_rule.__func__

    def infer(self, types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        """The results' types; ValueError says why the operands or attributes do not fit."""
        shapes = self._shapes(types, attrs)
        dtypes = self._dtypes(types, attrs)
        results = [TensorType(d, s) for d, s in zip(dtypes, shapes, strict=True)]
        for type_ in results:
            if any(isinstance(d, int) and d < 0 for d in type_.shape or ()):
                raise ValueError(f"{self.name}: the result would be {type_}, and a size is not negative")
        return results

    def _shapes(self, types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        bound: dict[str, Any] = {}
        for operand, type_ in self.pairs(types):
            if type_ is None:
                if not operand.optional:
                    raise ValueError(f"{self.name}: operand '{operand.name}' is missing")
            elif type_.shape is not None and not match_shape(operand.pattern, type_.shape, bound):
                raise ValueError(self._mismatch(operand, type_, bound))
        if self.shape_rule is not None:
            return self.shape_rule(types, attrs)
        return [build_shape(r.pattern, bound) for r in self.signature.results]

    def _mismatch(self, operand: Operand, type_: TensorType, bound: dict[str, Any]) -> str:
        text = f"{self.name}: '{operand.name}' is {type_}, expected {pattern_text(operand.pattern)}"
        known = ", ".join(f"{k} = {pattern_text(v) if isinstance(v, tuple) else v}" for k, v in bound.items())
        return text + (f" with {known}" if known else "")

    def pairs(self, values: Sequence[Any]) -> Iterator[tuple[Operand, Any]]:
        """Each declared operand with its value (None where absent); a variadic one once a value. ValueError for too
        many.
        """
        declared = self.signature.operands
        if self.signature.variadic:
            fixed = declared[:-1]
            rest = [(declared[-1], v) for v in values[len(fixed) :]]
            yield from [*zip(fixed, values, strict=False), *rest]
            return
        if len(values) > len(declared):
            raise ValueError(f"{self.name} takes {len(declared)} operands, {len(values)} given")
        for i, operand in enumerate(declared):
            yield operand, values[i] if i < len(values) else None

    def _dtypes(self, types: Types, attrs: dict[str, Any]) -> list[DType]:
        rule = self.dtype_rule
        if callable(rule):
            found = rule(types, attrs)
            return [found] if isinstance(found, DType) else list(found)
        rules = rule if isinstance(rule, tuple) else (rule,)
        return [self._dtype(r, types, attrs) for r in rules]

    def _dtype(self, rule: str, types: Types, attrs: dict[str, Any]) -> DType:
        if rule[0] == "!":
            return DTYPES[rule[1:]]
        if rule[0] == "=":
            found = attrs[rule[1:]]
            assert isinstance(found, DType)
            return found
        for operand, type_ in self.pairs(types):
            if operand.name == rule and type_ is not None:
                return type_.dtype
        raise ValueError(f"{self.name}: operand '{rule}' is missing")

    def complete(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """The attributes in declared order with what the signature gives filled in; ValueError names missing, unknown
        and ill-typed ones.
        """
        problems = [f"unknown attribute '{k}' {suggest(k, self.attrs)}".strip() for k in attrs if k not in self.attrs]
        full = {}
        for name, attr in self.attrs.items():
            value = attrs.get(name, attr.default)
            if isinstance(value, list):
                value = tuple(value)
            if value is MISSING:
                problems.append(f"attribute '{name}' is missing")
            elif not attr.accepts(value):
                problems.append(f"attribute '{name}' must be {attr.kind}, got {value!r}")
            else:
                full[name] = value
        if problems:
            raise ValueError(f"{self.name}: " + "; ".join(problems))
        return full

    def functions(self, attrs: dict[str, Any]) -> list[str]:
        """The functions of the module that a node with these attributes runs."""
        return [attrs[name] for name, attr in self.attrs.items() if attr.kind == "fn"]

    def operand_index(self, name: str) -> int:
        """The position of a declared operand; KeyError for an unknown one."""
        for i, operand in enumerate(self.signature.operands):
            if operand.name == name:
                return i
        raise KeyError(f"{self.name} has no operand '{name}'")

    def __repr__(self) -> str:
        return f"<op {self.name}>"


OPS: dict[str, OpDef] = {}
"""Every declared op by name, filled by importing ``moec.ops``."""


def op(signature: str) -> Callable[[type], type]:
    """Declare an op; TypeError where the declaration is incomplete or its name is taken."""

    def declare(body: type) -> type:
        definition = OpDef(parse_signature(signature), body)
        if definition.name in OPS:
            raise TypeError(f"op {definition.name} is declared twice")
        OPS[definition.name] = definition
        return body

    return declare


def opdef(name: str) -> OpDef:
    """The declaration of ``name``; ValueError with a suggestion for an unknown one."""
    found = OPS.get(name)
    if found is None:
        raise ValueError(f"unknown op '{name}' {suggest(name, OPS)}".strip())
    return found
