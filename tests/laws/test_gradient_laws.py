"""Every rule's gradient law: both sides differentiated give the same gradients, in fp64, for the same incoming ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from moec.autodiff import Options, differentiate
from moec.diagnostics import Refusal
from moec.eval import run
from moec.ir.graph import Module, Value
from moec.passes.base import known_passes
from moec.rewrite.prove import Arrays, Law, apply_to, draw, laws
from moec.rewrite.rule import RULES
from moec.rewrite.term import T, Term

known_passes()

TOLERANCE = 1e-7
"""Relative to the largest element of a gradient: both sides are in fp64, their constants rounded to f32."""

SMALLEST = 1e-6
"""Gradients that are smaller throughout are compared absolutely: all of one may be what rounding leaves of zero."""

NO_GRADIENT = ("no output varies with", "does not vary with", "second derivatives", "is a training graph already")
"""Why a rule has no gradient to compare: it is on indices or conditions, or on gradients themselves."""

PERMUTED = ("unpermute-of-",)
"""Rules whose pass asks that operand ``i`` is a permutation."""


def gradients(law: Law, module: Module, seed: int) -> Arrays:
    """d_<operand> of every float operand but masks, for random incoming gradients of all results that take one."""
    outputs = zip(module.main.output_names, module.main.outputs, strict=True)
    kept = [n for n, v in outputs if _takes_gradient(v)]
    floats = [v.name for v in module.main.inputs if v.type.dtype.is_float]
    wrt = [n for n in floats if n != "mask"] if "mask" in floats else []
    differentiate(module, Options(loss=kept, wrt=wrt))
    ranges = {name: (low, high) for name, (_, _, low, high) in law.case.operands.items()}
    inputs = draw(law.types(), seed, False, ranges)
    rng = np.random.default_rng(seed)
    if law.rule.name.startswith(PERMUTED):
        inputs["i"] = rng.permutation(inputs["i"].size).reshape(inputs["i"].shape)
    for v in module.main.inputs[len(inputs) :]:
        inputs[v.name] = rng.standard_normal(v.type.dims)
    with np.errstate(all="ignore"):
        found = run(module, inputs, fp64=True)
    return {n: a for n, a in found.items() if n.startswith("d_")}


def _takes_gradient(value: Value) -> bool:
    node = value.producer
    return value.type.dtype.is_float and not (node is not None and node.op == "attention_stats" and value.index > 0)


def differences(law: Law) -> list[str]:
    """Gradients of both sides that differ; one that a side does not have counts as zero there. Refusal where the rule
    has none.
    """
    found = []
    for seed in (0, 1):
        before, after = law.module(), law.module()
        assert apply_to(law.rule, after).applied
        old, new = (gradients(law, m, seed) for m in (before, after))
        assert old or new, "no gradient at all"
        for name in {**old, **new}:
            a = old.get(name, np.zeros(1))
            b = new.get(name, np.zeros(1))
            scale = max(float(np.max(np.abs(a), initial=0.0)), SMALLEST)
            error = float(np.max(np.abs(a - b), initial=0.0)) / scale
            if not error <= max(TOLERANCE, 10 * law.rule.bound):
                found.append(f"seed {seed}: {name} differs by {error:.3g}")
    return found


LAWS = [law for rule in RULES.values() for law in laws(rule) if law.dtype == rule.dtypes[0]]


def compared(law: Law) -> bool:
    """Whether the rule has gradients, and both sides the same; AssertionError where they differ."""
    try:
        assert differences(law) == []
    except Refusal as refusal:
        assert any(part in str(refusal) for part in NO_GRADIENT)
        return False
    return True


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_both_sides_have_the_same_gradients(law: Law) -> None:
    compared(law)


def test_most_rules_have_gradients() -> None:
    """The laws above compare something: a refusal that hides all would be noticed."""
    assert sum(map(compared, LAWS[::5])) > len(LAWS[::5]) // 2


def test_a_wrong_gradient_is_noticed() -> None:
    def wrong(x: Term) -> Iterator[Term]:
        yield x * T.sigmoid(x)
        yield -T.silu(-x)

    law = next(laws(replace(RULES["silu"], body=wrong)))
    assert "d_x differs" in differences(law)[0]
