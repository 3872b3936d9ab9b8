"""Mutants of a rule's after side: one sign, operand order, op, index, axis or flag changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moec.ir.types import DTYPES, DType
from moec.rewrite.term import Apply, Splat, Term, applies, variable

SWAPS = {
    "add": "sub",
    "sub": "add",
    "mul": "div",
    "div": "mul",
    "minimum": "maximum",
    "maximum": "minimum",
    "eq": "ne",
    "ne": "eq",
    "lt": "le",
    "le": "lt",
    "gt": "ge",
    "ge": "gt",
    "and": "or",
    "or": "and",
    "xor": "or",
    "reduce_sum": "reduce_mean",
    "reduce_mean": "reduce_sum",
    "reduce_max": "reduce_min",
    "reduce_min": "reduce_max",
    "silu": "sigmoid",
    "sigmoid": "silu",
    "rsqrt": "sqrt",
    "reciprocal": "neg",
    "exp": "abs",
    "log": "neg",
    "pow": "mul",
}
"""Another op of the same signature for each op that rules make."""

CHOICES = {
    "activation": ("silu", "relu", "gelu", "gelu_tanh"),
    "glu": ("chunked", "interleaved"),
    "score": ("softmax", "sigmoid"),
    "score_order": ("before_topk", "after_topk"),
    "approximate": ("none", "tanh"),
    "group_score": ("max", "sum2"),
    "group_mask": ("zero", "minus_inf"),
    "reduction": ("none", "add"),
}

Mutant = tuple[str, tuple[Term, ...]]


def mutants(after: Sequence[Term]) -> Iterator[Mutant]:
    """Every mutant of ``after``, with what was changed."""
    for i, term in enumerate(after):
        if term.dtype.name != "bool":
            yield f"sign of result {i}", (*after[:i], _unary("neg", term), *after[i + 1 :])
        else:
            yield f"result {i} negated", (*after[:i], _unary("not", term), *after[i + 1 :])
    for position, apply in enumerate(applies(after)):
        where = f"{apply.op}#{position}"
        for what, change in _changes(apply):
            yield f"{where}: {what}", _rebuilt(after, apply, change)


def _unary(op: str, term: Term) -> Term:
    from moec.ops.registry import opdef

    return Apply(opdef(op), (term,), {}).results[0]


Change = Callable[[Apply, tuple[Term | None, ...]], Apply]


def _changes(apply: Apply) -> Iterator[tuple[str, Change]]:
    from moec.ops.registry import opdef

    if apply.op in SWAPS:
        other = SWAPS[apply.op]
        yield (
            f"becomes {other}",
            lambda a, ops: Apply(opdef(other), ops[: len(opdef(other).signature.operands)], a.attrs),
        )
    if len(apply.operands) == 2 and None not in apply.operands and "commutative" not in apply.definition.traits:
        yield "operands swapped", lambda a, ops: Apply(a.definition, (ops[1], ops[0]), a.attrs)
    for name, value in apply.attrs.items():
        for changed in _other_values(name, value):
            attrs = {**apply.attrs, name: changed}
            yield f"{name} becomes {changed}", lambda a, ops, attrs=attrs: Apply(a.definition, ops, attrs)


def _other_values(name: str, value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [value * 1.5 + 0.25]
    if isinstance(value, str):
        return [c for c in CHOICES.get(name, ()) if c != value]
    if isinstance(value, DType):
        return [DTYPES["f16" if value.name == "bf16" else "bf16"]]
    if isinstance(value, tuple) and value and isinstance(value[0], int):
        return [(*value[1:], value[0])] if len(set(value)) > 1 else [(value[0] + 1, *value[1:])]
    return []


def _rebuilt(after: Sequence[Term], target: Apply, change: Change) -> tuple[Term, ...]:
    """The terms with ``target`` changed and all else copied."""
    made: dict[Apply, Apply] = {}

    def copy(term: Term | None) -> Term | None:
        if term is None or isinstance(term, Splat):
            return term
        if term.apply is None:
            return variable(term.name, term.known)
        return made[term.apply].results[term.index]

    for apply in applies(after):
        operands = tuple(copy(t) for t in apply.operands)
        made[apply] = change(apply, operands) if apply is target else Apply(apply.definition, operands, apply.attrs)
    return tuple(t for t in map(copy, after) if t is not None)
