"""What each rule of the rewrites makes of its first case, and the gradient of that: one file a pass.

``rules/<pass>.txt`` holds, for each rule, the IR before and after, and, where it has a gradient, the joint graph of
after. ``--snapshot-update`` writes it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from golden_plugin import Golden

from moec.autodiff import Options, differentiate
from moec.diagnostics import Refusal
from moec.ir.graph import Module, Value
from moec.ir.text import print_module
from moec.passes.base import known_passes
from moec.passes.rule_pass import RulePass
from moec.passes.rules_rows import ROW_RULES
from moec.rewrite.prove import Law, apply_to, laws
from moec.rewrite.rule import RULES, Rule

FOLDER = Path(__file__).parent / "rules"
PASSES = (
    "canonicalise",
    "fuse-gating",
    "fuse-norm",
    "fuse-rope",
    "fuse-swiglu",
    "gather-rows",
    "packed-mask",
    "permute-fusion",
    "prob-placement",
    "rect-attention",
    "rope-concat-elim",
    "rotate-half-elim",
    "rows",
    "sum-rows",
)
"""Passes that consist of rules; ``rows`` are those that spell ops row-wise, which several passes share."""


def rules_of(name: str) -> list[Rule]:
    """The rules of a pass, those that it shares aside."""
    if name == "rows":
        return list(ROW_RULES)
    cls = known_passes()[name]
    assert issubclass(cls, RulePass)
    return [rule for rule in cls.rules() if rule not in ROW_RULES]


def rendered(name: str) -> str:
    """The rules of a pass: each before, after and backward."""
    return "".join(map(_rule, rules_of(name)))


def test_no_rule_is_left_out() -> None:
    known = {rule.name for name in PASSES for rule in rules_of(name)}
    moecs = {name for name, rule in RULES.items() if (rule.body.__module__ or "").startswith("moec.")}
    assert moecs == known  # rules that another test made by exec belong to no module


def _rule(rule: Rule) -> str:
    law = next(laws(rule))
    before, after = law.module(), law.module()
    assert apply_to(rule, after).applied
    parts = [f"## {rule.name}: {law.case.text}", print_module(before), "=> ", print_module(after)]
    backward = _backward(law)
    return "\n".join([*parts, *(["=> backward", print_module(backward)] if backward else []), ""])


def _backward(law: Law) -> Module | None:
    """The joint graph of the after side; None where the rule is on indices or on gradients themselves."""
    module = law.module()
    apply_to(law.rule, module)
    names = [v.name for v in module.main.inputs if v.type.dtype.is_float and v.name != "mask"]
    outputs = zip(module.main.output_names, module.main.outputs, strict=True)
    loss = [n for n, v in outputs if v.type.dtype.is_float and not _is_sum(v)]
    try:
        return differentiate(module, Options(loss=loss, wrt=names))
    except Refusal:
        return None


def _is_sum(v: Value) -> bool:
    """Whether a value is the logarithm of attention's sums, which takes no gradient."""
    return v.producer is not None and v.producer.op == "attention_stats" and v.index > 0


@pytest.mark.parametrize("name", PASSES)
def test_rules(name: str, request: pytest.FixtureRequest) -> None:
    Golden(FOLDER / f"{name}.txt", request.config.getoption("--snapshot-update"))(rendered(name))


def _digests() -> list[str]:
    return [hashlib.sha256(rendered(name).encode()).hexdigest() for name in PASSES]


def test_the_same_bytes_under_any_hash_seed() -> None:
    made = []
    for seed in ("1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        code = "import test_rules; print(test_rules._digests())"
        run = subprocess.run([sys.executable, "-c", code], env=env, cwd=FOLDER.parent, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        made.append(run.stdout.strip())
    assert made == [str(_digests())] * 2
