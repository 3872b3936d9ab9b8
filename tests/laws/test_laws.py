"""Every rule's laws, generated from its declaration: sizes times dtypes times seeds; and its near-misses."""

from __future__ import annotations

import pytest

from moec.passes.base import known_passes
from moec.passes.rule_pass import RulePass
from moec.passes.rules_rows import ROW_RULES
from moec.rewrite.prove import Law, apply_to, check_law, laws, module_of, why_not
from moec.rewrite.rule import RULES, Near, Rule

known_passes()
LAWS = [law for rule in RULES.values() for law in laws(rule)]
NEAR = [(rule, near) for rule in RULES.values() for near in rule.near]
SEEDS = (0, 1, 2)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_before_and_after_agree(law: Law) -> None:
    assert check_law(law, SEEDS) == ""


@pytest.mark.parametrize(("rule", "near"), NEAR, ids=lambda x: x.name if isinstance(x, Rule) else x.case.text)
def test_near_miss_is_refused_for_its_reason(rule: Rule, near: Near) -> None:
    swept = rule.dtypes[0]
    types = near.case.types(swept)
    module = module_of(rule.pattern_for(types, near.case.for_dtype(swept)), types)
    assert near.reason in why_not(rule, module)
    assert not apply_to(rule, module).applied


@pytest.mark.parametrize("law", [law for law in LAWS if law.dtype == law.rule.dtypes[0]], ids=lambda law: law.name)
def test_near_miss_terms_do_not_match(law: Law) -> None:
    types = law.types()
    for miss in law.rule.instantiate(types, law.case.for_dtype(law.dtype)).misses:
        assert not apply_to(law.rule, module_of(miss.outputs, types)).applied, miss.reason


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.name)
def test_every_rule_is_documented(rule: Rule) -> None:
    text = rule.text()
    assert text.startswith(f"{rule.name} ({rule.exactness}")
    assert rule.why in text and " => " in text
    assert text.count("not if") >= len({n.reason for n in rule.near}) - 1


def test_there_are_rules() -> None:
    assert len(RULES) > 120 and len(LAWS) > 500 and len(NEAR) > 150


def test_every_rule_belongs_to_a_pass() -> None:
    used = {r.name for p in known_passes().values() if issubclass(p, RulePass) for r in p.rules()}
    assert used | {r.name for r in ROW_RULES} == set(RULES)
