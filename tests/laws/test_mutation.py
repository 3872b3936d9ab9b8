"""The law tests can fail: any one change to a rule's after side is noticed, and so is any guard left out."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from mutants import mutants

from moec import eval as reference
from moec.diagnostics import Diagnosis
from moec.passes.base import known_passes
from moec.rewrite.prove import Law, apply_to, check_law, compare, laws, module_of, why_not
from moec.rewrite.rule import RULES, Near, Rule
from moec.rewrite.term import Guards, NoMatch, Term

known_passes()

EQUIVALENT = [
    (r"gating-(softmax|sigmoid|topk).*", r"group_top_k becomes", "of one group one is chosen whatever the number"),
    (
        r"gating-(softmax|sigmoid|topk).*|gating-scale.*|gating-narrow.*",
        r"renormalize_eps becomes",
        "no renormalisation",
    ),
    (r"(gelu|gelu_tanh|relu|sigmoid)-glu-.*", r"alpha becomes", "only silu has an alpha"),
    (
        r"gating-(sigmoid-topk|topk-sigmoid)",
        r"score_order becomes",
        "the sigmoid keeps the order and looks at one score",
    ),
    (r"rank-in-expert.*", r"histogram#\d+: bins becomes 5", "where experts beyond the last would start is not read"),
    (r"packed-mask.*", r"expand#[06]: shape becomes", "one empty sequence more, at the start or the end"),
    (r"rows-reduce_.*", r"keepdims becomes False", "the reshape behind it says the shape"),
]
"""Changes that mean the same: rule, change, and why."""


def noticed(law: Law, after: Sequence[Term], genuine: Sequence[Term]) -> bool:
    """Whether some seed tells ``after`` from the rule's before side.

    Where the rule itself keeps every bit, so must ``after``: a tolerance for 16-bit results would hide a rounding.
    """
    types = law.types()
    before = law.module()
    try:
        changed, right = module_of(after, types), module_of(genuine, types)
        for seed in (0, 1, 2):
            inputs = law.inputs(seed)
            for fp64 in (True, False):
                with np.errstate(all="ignore"):
                    old, new = (reference.run(m, inputs, fp64=fp64) for m in (before, changed))
                    kept = reference.run(right, inputs, fp64=fp64)
                if compare(law.rule, old, new, fp64):
                    return True
                if not fp64 and any(_same(old[n], kept[n]) and not _same(old[n], new[n]) for n in old):
                    return True
    except (Diagnosis, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return True
    return False


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def survivors(rule: Rule) -> tuple[int, list[str]]:
    """How many mutants the rule has, and those that no law notices."""
    killed: dict[str, bool] = {}
    for law in laws(rule):
        try:
            after = rule.instantiate(law.types(), law.case.for_dtype(law.dtype)).after
        except NoMatch as refused:
            pytest.fail(f"{rule.name} refuses its own case {law.case.text}: {refused.reason}")
        for what, terms in mutants(after):
            if not killed.get(what):
                killed[what] = noticed(law, terms, after)
    return len(killed), [what for what, dead in killed.items() if not dead]


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.name)
def test_every_mutant_is_noticed(rule: Rule) -> None:
    count, alive = survivors(rule)
    assert count
    known = [part for name, part, _ in EQUIVALENT if re.fullmatch(name, rule.name)]
    assert not [what for what in alive if not any(re.search(part, what) for part in known)], f"of {count} mutants"


def test_equivalent_mutants_are_still_there() -> None:
    """An entry of the list that no rule needs any more has to go."""
    alive = [(rule.name, what) for rule in RULES.values() for what in survivors(rule)[1]]
    for name, part, why in EQUIVALENT:
        assert any(re.fullmatch(name, rule) and re.search(part, what) for rule, what in alive), f"{part} ({why})"


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.name)
def test_every_guard_is_needed(rule: Rule) -> None:
    """For each guard there is a near-miss that only it refuses, or refuses for this reason."""
    with Guards() as counted:
        for law in laws(rule):
            rule.instantiate(law.types(), law.case.for_dtype(law.dtype))
    for number in range(1, counted.most + 1):
        with Guards(skipped=number):
            assert any(_passes(rule, n) for n in rule.near), f"guard {number} of {counted.most} has no near-miss"


def _passes(rule: Rule, near: Near) -> bool:
    """Whether a near-miss matches now, or is refused for another reason only."""
    types = near.case.types(rule.dtypes[0])
    module = module_of(rule.pattern_for(types, near.case.for_dtype(rule.dtypes[0])), types)
    try:
        return near.reason not in why_not(rule, module) or bool(apply_to(rule, module).applied)
    except Diagnosis:
        return True


def test_a_wrong_rule_fails_its_law() -> None:
    rule = RULES["silu"]

    def wrong(x):
        from moec.rewrite.term import T

        yield x * T.sigmoid(x)
        yield -T.silu(x)

    from dataclasses import replace

    law = next(laws(replace(rule, body=wrong)))
    assert "relative error" in check_law(law, (0,))
