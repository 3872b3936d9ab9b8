"""Terms: expressions over symbolic operands, in which rules are written.

``T.softmax(x, axis=a)`` applies the op of that name; ``x * y``, ``x + y``, ``x - y``, ``x / y`` and ``-x`` work too,
and a Python number beside a term stands for a constant all of whose elements are that number. A term of a rule's
*before* side is a pattern: its variables carry no types and its attributes may be ``AttrVar``s. Of a term over
variables with types, each part's type is inferred from the ops' declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moec.ir.attrs import print_attr
from moec.ir.symbol import Shape
from moec.ir.types import DType, TensorType
from moec.ops.registry import OpDef, opdef

Number = bool | int | float


class NoMatch(Exception):
    """A rule does not apply: ``reason`` says why, ``terms`` are the parts of the before term to blame."""

    def __init__(self, reason: str, terms: Sequence[Term] = ()):
        super().__init__(reason)
        self.reason, self.terms = reason, tuple(terms)


class AttrVar:
    """A named attribute that a match binds."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Term:
    """One value of an expression: result ``index`` of ``apply``, or, where that is None, a variable or a number."""

    __slots__ = ("apply", "index", "name", "known")

    def __init__(self, apply: Apply | None, index: int = 0, name: str = "", known: TensorType | None = None):
        self.apply, self.index, self.name, self.known = apply, index, name, known

    @property
    def type(self) -> TensorType:
        """Its type; TypeError in a before term, where no types are known yet."""
        if self.known is None:
            if self.apply is None:
                raise TypeError(f"the type of {self} is not known before a match; ask for it after the before term")
            self.known = self.apply.types()[self.index]
        return self.known

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """Its shape; NoMatch where not even the rank is known."""
        if self.type.shape is None:
            raise NoMatch(f"the rank of {self} is unknown", [self])
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __add__(self, other: Term | Number) -> Term:
        return _binary("add", self, other)

    def __radd__(self, other: Number) -> Term:
        return _binary("add", self, other)

    def __sub__(self, other: Term | Number) -> Term:
        return _binary("sub", self, other)

    def __mul__(self, other: Term | Number) -> Term:
        return _binary("mul", self, other)

    def __rmul__(self, other: Number) -> Term:
        return _binary("mul", self, other)

    def __truediv__(self, other: Term | Number) -> Term:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Number) -> Term:
        return _apply("div", (splat(other, self), self), {})[0]

    def __neg__(self) -> Term:
        return _apply("neg", (self,), {})[0]

    def __str__(self) -> str:
        if self.apply is None:
            return self.name
        suffix = f"[{self.index}]" if len(self.apply.definition.signature.results) > 1 else ""
        return f"{self.apply}{suffix}"

    __repr__ = __str__


class Splat(Term):
    """A constant all of whose elements are ``value``: a number, or an ``AttrVar`` that binds it; of ``like``'s dtype.

    As a pattern it takes a constant of any shape; built, it is a scalar.
    """

    __slots__ = ("value", "like")

    def __init__(self, value: Number | AttrVar, like: Term | DType):
        super().__init__(None, 0, str(value))
        self.value, self.like = value, like

    @property
    def type(self) -> TensorType:
        return TensorType(self.like if isinstance(self.like, DType) else self.like.dtype, ())


class Apply:
    """An op applied to terms; ``attrs`` holds every declared attribute, as a value or an ``AttrVar``."""

    __slots__ = ("definition", "operands", "attrs", "results", "_types")

    def __init__(self, definition: OpDef, operands: tuple[Term | None, ...], attrs: dict[str, Any]):
        self.definition, self.operands, self.attrs = definition, operands, attrs
        self.results = tuple(Term(self, i) for i in range(len(definition.signature.results)))
        self._types: list[TensorType] | None = None

    @property
    def op(self) -> str:
        return self.definition.name

    def types(self) -> list[TensorType]:
        """The results' types, inferred from the operands'."""
        if self._types is None:
            known = [None if t is None else t.type for t in self.operands]
            self._types = self.definition.infer(known, self.definition.complete(self.attrs))
        return self._types

    def __str__(self) -> str:
        parts = ["none" if t is None else str(t) for t in self.operands]
        parts += [f"{k}={v if isinstance(v, AttrVar) else print_attr(v)}" for k, v in self.attrs.items()]
        return f"{self.op}({', '.join(parts)})"


def _binary(op: str, left: Term, right: Term | Number) -> Term:
    return _apply(op, (left, right), {})[0]


def _apply(op: str, operands: Sequence[Term | Number | None], attrs: dict[str, Any]) -> tuple[Term, ...]:
    definition = opdef(op)
    unknown = [k for k in attrs if k not in definition.attrs]
    missing = [k for k in definition.attrs if k not in attrs]
    if unknown or missing:
        raise TypeError(
            f"{op} in a rule: bind every attribute, none is a wildcard"
            + (f"; missing: {', '.join(missing)}" if missing else "")
            + (f"; unknown: {', '.join(unknown)}" if unknown else "")
        )
    like = next((t for t in operands if isinstance(t, Term) and not isinstance(t, Splat)), None)
    terms: list[Term | None] = []
    for t in operands:
        if t is None or isinstance(t, Term):
            terms.append(t)
        elif like is None:
            raise TypeError(f"{op} in a rule: a number needs a term beside it that says its dtype")
        else:
            terms.append(Splat(t, like))
    ordered = {k: tuple(v) if isinstance(v := attrs[k], list) else v for k in definition.attrs}
    return Apply(definition, tuple(terms), ordered).results


def splat(value: Any, like: Term | DType) -> Splat:
    """A constant all of whose elements are ``value``, a number or an attribute; ``like`` is its dtype or has it."""
    return Splat(value, like)


def variable(name: str, known: TensorType | None = None) -> Term:
    """A variable operand."""
    return Term(None, 0, name, known)


def require(condition: bool, reason: str, *blame: Term) -> None:
    """A guard of a rule: unless ``condition`` holds the rule does not apply, for ``reason``, which blames terms."""
    guards = _guards[-1] if _guards else None
    if guards is not None:
        guards.seen += 1
        guards.most = max(guards.most, guards.seen)
        if guards.seen == guards.skipped:
            return
    if not condition:
        raise NoMatch(reason, blame)


class Guards:
    """Counts the guards of each run of a rule, and skips number ``skipped`` (from 1): for tests of the guards.

    ``most`` is the largest number that a run came to.
    """

    def __init__(self, skipped: int = 0):
        self.skipped, self.seen, self.most = skipped, 0, 0

    def __enter__(self) -> Guards:
        _guards.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _guards.pop()


_guards: list[Guards] = []


def restart_guards() -> None:
    """A run of a rule begins: count its guards from the first."""
    if _guards:
        _guards[-1].seen = 0


class _Ops:
    """``T.name(*operands, **attributes)``: one term, or a tuple where the op has several results."""

    def __getattr__(self, op: str) -> Callable[..., Any]:
        name = op.rstrip("_")

        def build(*operands: Term | Number | None, **attrs: Any) -> Any:
            results = _apply(name, operands, attrs)
            return results[0] if len(results) == 1 else results

        return build


T = _Ops()
"""The ops as term builders; ``T.and_`` and ``T.or_`` for names that Python keeps."""


def applies(outputs: Sequence[Term]) -> Iterator[Apply]:
    """Every op application below ``outputs``, operands before users, each once."""
    done: set[Apply] = set()
    stack: list[tuple[Apply, bool]] = [(t.apply, False) for t in reversed(outputs) if t.apply is not None]
    while stack:
        apply, ready = stack.pop()
        if apply in done:
            continue
        if ready:
            done.add(apply)
            yield apply
            continue
        stack.append((apply, True))
        for t in reversed(apply.operands):
            if t is not None and t.apply is not None and t.apply not in done:
                stack.append((t.apply, False))


def term_lines(outputs: Sequence[Term]) -> list[str]:
    """Terms as text: a line for each op application that is read more than once or has several results, then the
    outputs.
    """
    below = list(applies(outputs))
    reads: dict[Apply, int] = {}
    for term in [*outputs, *(t for a in below for t in a.operands)]:
        if term is not None and term.apply is not None:
            reads[term.apply] = reads.get(term.apply, 0) + 1
    names: dict[Apply, str] = {}
    lines: list[str] = []

    def text(term: Term | None) -> str:
        if term is None or term.apply is None:
            return "none" if term is None else term.name
        if term.apply not in names:
            return call(term.apply)
        several = len(term.apply.results) > 1
        return f"{names[term.apply]}[{term.index}]" if several else names[term.apply]

    def call(apply: Apply) -> str:
        attrs = [f"{k}={v if isinstance(v, AttrVar) else print_attr(v)}" for k, v in apply.attrs.items()]
        return f"{apply.op}({', '.join([*map(text, apply.operands), *attrs])})"

    for apply in below:
        if reads[apply] > 1 or len(apply.results) > 1:
            value = call(apply)
            names[apply] = f"t{len(names)}"
            lines.append(f"{names[apply]} = {value}")
    return [*lines, ", ".join(map(text, outputs))]
