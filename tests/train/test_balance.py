"""Balance losses: what they are, their gradients, and the ways to attach them to a layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import moec
from op_gradients import check_gradients, differences, feeds_of, gradient_module

from moec.autodiff import Options, differentiate
from moec.diagnostics import Refusal
from moec.eval import run
from moec.frontend.dsl import parse_moe
from moec.ir.graph import Module
from moec.ir.types import BF16
from moec.ops import OPS
from moec.ops.verify import verify
from moec.passes.balance_loss import BalanceLosses
from moec.passes.base import Context, PassManager, train_passes

Array = np.ndarray
EXAMPLES = Path(__file__).parents[2] / "examples"


def form(form: str, score: str, coefficient: float = 0.3) -> dict[str, Any]:
    """Attributes of ``balance_loss``."""
    return {"form": form, "score": score, "coefficient": coefficient}


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
@pytest.mark.parametrize("kind", ["load", "cv_squared"])
@pytest.mark.parametrize(("tokens", "experts"), [(1, 1), (1, 4), (5, 1), (7, 3), (6, 8)])
def test_gradients(kind: str, score: str, tokens: int, experts: int) -> None:
    rng = np.random.default_rng(tokens)
    counts = rng.integers(0, 5, experts).astype(np.int32) if kind == "load" else None
    check_gradients("balance_loss", [rng.standard_normal((tokens, experts)), counts], form(kind, score))


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_the_loss_is_the_published_sum(score: str) -> None:
    """E sum of f P with f and P counted token by token, and the variance of the experts' shares over their mean's
    square.
    """
    rng = np.random.default_rng(0)
    logits, chosen = rng.standard_normal((9, 4)), rng.integers(0, 4, (9, 2))
    each = np.exp(logits) if score == "softmax" else 1 / (1 + np.exp(-logits))
    share = np.array([sum(each[t, i] / each[t].sum() for t in range(9)) / 9 for i in range(4)])
    fraction = [4 / (2 * 9) * np.sum(chosen == i) for i in range(4)]
    counts = np.bincount(chosen.ravel(), minlength=4)
    got = OPS["balance_loss"].ref(logits, counts, **form("load", score))
    np.testing.assert_allclose(got, 0.3 * sum(f * p for f, p in zip(fraction, share, strict=True)), rtol=1e-12)
    got = OPS["balance_loss"].ref(logits, None, **form("cv_squared", score))
    np.testing.assert_allclose(got, 0.3 * np.var(share) / np.mean(share) ** 2, rtol=1e-12)


def test_even_scores_are_balanced() -> None:
    """The load form is its coefficient then, whatever the counts; the other is 0."""
    even = np.zeros((3, 4))
    assert OPS["balance_loss"].ref(even, np.array([3, 0, 0, 0]), **form("load", "softmax")) == pytest.approx(0.3)
    assert OPS["balance_loss"].ref(even, None, **form("cv_squared", "sigmoid")) == pytest.approx(0, abs=1e-16)


@pytest.mark.parametrize("kind", ["load", "cv_squared"])
def test_no_tokens_are_no_loss(kind: str) -> None:
    counts = np.zeros(4, np.int32) if kind == "load" else None
    module = gradient_module("balance_loss", [np.zeros((0, 4)), counts], form(kind, "sigmoid"))
    got = run(module, feeds_of(module, [np.zeros((0, 4)), counts], np.random.default_rng(0)))
    assert got["y0"] == 0 and got["g0"].shape == (0, 4)


def test_the_gradient_of_16_bit_logits_is_rounded_once() -> None:
    logits, counts = np.random.default_rng(0).standard_normal((5, 4)), np.array([3, 0, 5, 2], np.int32)
    module = gradient_module("balance_loss", [logits, counts], form("load", "softmax"), BF16)
    feeds = feeds_of(module, [logits, counts], np.random.default_rng(1))
    got, exact = run(module, feeds)["g0"], run(module, feeds, fp64=True)["g0"]
    assert (np.abs(got.astype(np.float64) - exact) <= 2.0**-8 * np.abs(exact) + 2.0**-20 * np.abs(exact).max()).all()


@pytest.mark.parametrize(
    ("kind", "counted", "reason"),
    [("load", False, "takes the counts"), ("cv_squared", True, "takes no counts"), ("even", True, "none of load")],
)
def test_forms_that_do_not_fit_are_refused(kind: str, counted: bool, reason: str) -> None:
    counts = np.ones(4, np.int32) if counted else None
    with pytest.raises(ValueError, match=reason):
        gradient_module("balance_loss", [np.zeros((2, 4)), counts], form(kind, "softmax"))


LAYER = """
dim T in [1, 64] = 5
H = 4
E = 6
I = 3
{groups}
input x: f32[T, H]

{layer}
routing = {{
    top_k = 2, score = "{score}", score_order = "before_topk",
    groups = 1, group_top_k = 1, group_score = "none", group_mask = "none",
    renormalize = true, renormalize_eps = 0.0, scale = 1.0,
    router_dtype = f32, score_dtype = f32, weights_dtype = f32
}}
swiglu_mlp = {{ activation = "silu", glu = "chunked", alpha = 1.0, limit = none, up_offset = 0.0 }}

{body}
output y
"""
ONE = """
weight router: f32[E, H], gate_up: f32[E, 2*I, H], down: f32[E, H, I]
"""
BODY = """
y, _ = moe({x}, router, gate_up, down, **routing, **swiglu_mlp, weights_on = "output",
           capacity = none, capacity_scope = "none", dropped = "none")
"""
TWICE = """
layer block(h) {{
    weight router: f32[E, H], gate_up: f32[E, 2*I, H], down: f32[E, H, I]
    {body}
    return y
}}
"""


def layer(score: str = "softmax", groups: str = "") -> Module:
    """One block."""
    return parse_moe(LAYER.format(groups=groups, layer=ONE, score=score, body=BODY.format(x="x")))


def weights_of(module: Module, rng: np.random.Generator) -> dict[str, Array]:
    """Random weights by name."""
    return {n.attrs["name"]: rng.standard_normal(n.attrs["shape"]) for n in module.main if n.op == "weight"}


def balance(logits: Array, counts: Array, score: str, coefficient: float) -> float:
    """E sum of f P, written out."""
    each = np.exp(logits) if score == "softmax" else 1 / (1 + np.exp(-logits))
    share = (each / each.sum(1, keepdims=True)).mean(0)
    return float(coefficient * logits.shape[1] * np.sum(counts / counts.sum() * share))


def counts_of(logits: Array) -> Array:
    """Tokens of each expert by the two best logits."""
    return np.bincount(np.argsort(-logits, axis=1)[:, :2].ravel(), minlength=logits.shape[1])


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_attached_to_a_block_it_reaches_the_router_and_x(score: str) -> None:
    """The joint graph of y's gradient and the balance loss, against differences of both sums."""
    module = layer(score)
    BalanceLosses(kind="micro_batch", coefficient=0.5).run(module, Context())
    verify(module)
    assert module.main.output_names == ["y", "balance_loss"]
    rng = np.random.default_rng(1)
    weights, x, dy = weights_of(module, rng), rng.standard_normal((5, 4)), rng.standard_normal((5, 4))
    plain = run(module, {"x": x}, weights, fp64=True)
    logits = x @ weights["router"].T
    np.testing.assert_allclose(plain["balance_loss"], balance(logits, counts_of(logits), score, 0.5), rtol=1e-12)
    forward = layer(score)
    differentiate(module, Options(loss=("y", "balance_loss")))
    got = run(module, {"x": x, "d_y": dy}, weights, fp64=True)

    def loss() -> float:
        logits = x @ weights["router"].T
        aux = balance(logits, counts_of(logits), score, 0.5)
        return float(np.sum(dy * run(forward, {"x": x}, weights, fp64=True)["y"])) + aux

    for name, array in (("x", x), ("router", weights["router"])):
        np.testing.assert_allclose(got[f"d_{name}"], differences(loss, array), atol=1e-7)


def test_layers_called_twice_give_the_sum_of_their_losses() -> None:
    text = TWICE.format(body=BODY.format(x="h"))
    module = parse_moe(LAYER.format(groups="", layer=text, score="softmax", body="y = block[0:2](x)"))
    result = BalanceLosses(coefficient=1.0).run(module, Context())
    verify(module)
    assert result.counts()["balance-loss"] == 1
    rng = np.random.default_rng(2)
    weights, x = weights_of(module, rng), rng.standard_normal((5, 4))
    first = {n.split(".")[-1]: w for n, w in weights.items() if ".0." in n}
    between = run(layer(), {"x": x}, first, fp64=True)["y"]
    routers = [w for n, w in weights.items() if "router" in n]
    logits = [h @ w.T for h, w in zip((x, between), routers, strict=True)]
    wanted = sum(balance(z, counts_of(z), "softmax", 1.0) for z in logits)
    np.testing.assert_allclose(run(module, {"x": x}, weights, fp64=True)["balance_loss"], wanted, rtol=1e-12)


@pytest.mark.parametrize(("kind", "size"), [("ep_group", 2), ("dp_group", 3)])
def test_over_a_group_the_counts_are_summed_and_the_gradient_is_the_ranks_own(kind: str, size: int) -> None:
    """f of the group's tokens, P of the rank's; each rank's gradient against differences with f held."""
    module = layer()
    BalanceLosses(kind=kind, coefficient=2.0, size=size).run(module, Context())
    differentiate(module, Options(loss=("balance_loss",), wrt=("x", "router")))
    verify(module)
    rng = np.random.default_rng(3)
    weights = weights_of(module, rng)
    xs = [rng.standard_normal((5, 4)) for _ in range(size)]
    got = run(module, {f"rank{r}.x": x for r, x in enumerate(xs)}, weights, fp64=True)
    router = weights["router"]
    counts = np.sum([counts_of(x @ router.T) for x in xs], axis=0)
    for rank, x in enumerate(xs):

        def loss(x: Array = x) -> float:
            return balance(x @ router.T, counts, "softmax", 2.0)

        np.testing.assert_allclose(got[f"rank{rank}.balance_loss"], loss(), rtol=1e-12)
        np.testing.assert_allclose(got[f"rank{rank}.d_x"], differences(loss, x), atol=1e-8)
        np.testing.assert_allclose(got[f"rank{rank}.d_router"], differences(loss, router), atol=1e-8)


def test_the_squared_coefficient_of_variation_takes_no_counts() -> None:
    module = layer()
    BalanceLosses(kind="cv_squared", coefficient=1.0).run(module, Context())
    (node,) = [n for n in module.main if n.op == "balance_loss"]
    assert len(node.operands) == 2 and node.operands[1] is None
    rng = np.random.default_rng(4)
    weights, x = weights_of(module, rng), rng.standard_normal((5, 4))
    e = np.exp(x @ weights["router"].T)
    share = (e / e.sum(1, keepdims=True)).mean(0)
    wanted = np.var(share) / share.mean() ** 2
    np.testing.assert_allclose(run(module, {"x": x}, weights, fp64=True)["balance_loss"], wanted, rtol=1e-12)


def test_options_that_do_not_fit_are_refused_together() -> None:
    with pytest.raises(Refusal) as refused:
        BalanceLosses(kind="expert", coefficient=0.0).run(layer(), Context())
    assert [p.what for p in refused.value.problems] == [
        "kind 'expert' of a balance loss is none of micro_batch, ep_group, dp_group, cv_squared",
        "the coefficient of a balance loss is above 0, not 0.0",
    ]
    with pytest.raises(Refusal, match="no group 'dp'"):
        BalanceLosses(kind="dp_group").run(layer(groups="group ep = 2"), Context())
    with pytest.raises(Refusal, match="no router is found"):
        BalanceLosses().run(parse_moe("input x: f32[4]\noutput x"), Context())


def test_written_in_the_language() -> None:
    """The example's four losses are those that the pass adds."""
    text = (EXAMPLES / "balance_losses.moe").read_text()
    module = parse_moe(text)
    rng = np.random.default_rng(5)
    weights = {n: a / 8 for n, a in weights_of(module, rng).items()}
    xs = [rng.standard_normal((7, 64)) for _ in range(4)]
    got = run(module, {f"rank{r}.x": x for r, x in enumerate(xs)}, weights, fp64=True)
    logits = [x @ weights["router"].T for x in xs]
    counts = [counts_of(z) for z in logits]
    for rank in range(4):
        pair = [r for r in range(4) if r // 2 == rank // 2]
        for name, over in (("micro_batch", [rank]), ("ep_group", pair), ("dp_group", range(4))):
            summed = np.sum([counts[r] for r in over], axis=0)
            wanted = balance(logits[rank], summed, "softmax", 0.001)
            np.testing.assert_allclose(got[f"rank{rank}.{name}"], wanted, rtol=1e-12, err_msg=name)
        share = np.exp(logits[rank]) / np.exp(logits[rank]).sum(1, keepdims=True)
        wanted = 0.001 * np.var(share.mean(0)) * logits[rank].shape[1] ** 2
        np.testing.assert_allclose(got[f"rank{rank}.cv_squared"], wanted, rtol=1e-12)


def test_it_counts_beside_the_layers_own_outputs_unless_losses_are_named() -> None:
    """As an option of training: the gradient of y comes in, the balance loss is one of its own."""
    made = layer()
    PassManager(train_passes(balance="kind=micro_batch,coefficient=0.5")).run(made, Context())
    assert [v.name for v in made.main.inputs] == ["x", "d_y"]
    rng = np.random.default_rng(1)
    weights, x, dy = weights_of(made, rng), rng.standard_normal((5, 4)), rng.standard_normal((5, 4))
    got = run(made, {"x": x, "d_y": dy}, weights, fp64=True)
    named = layer()
    BalanceLosses(coefficient=0.5).run(named, Context())
    differentiate(named, Options(loss=("y", "balance_loss")))
    expected = run(named, {"x": x, "d_y": dy}, weights, fp64=True)
    assert got.keys() == expected.keys()
    for name, wanted in expected.items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-10, atol=1e-12, err_msg=name)
    alone = layer()
    BalanceLosses().run(alone, Context())
    differentiate(alone, Options(loss=("y",)))
    assert not [n for n in alone.main if n.op == "seed"]


def test_the_option_belongs_to_training(tmp_path: Path) -> None:
    done = moec("compile", EXAMPLES / "tiny_moe.moe", "-o", tmp_path / "out", "--balance", "kind=micro_batch")
    assert done.returncode == 2 and "--balance without --train" in done.stderr
    given = ("--train", "--balance", "kind=expert")
    done = moec("compile", EXAMPLES / "tiny_moe.moe", "-o", tmp_path / "out", *given)
    assert done.returncode == 1 and "none of micro_batch, ep_group, dp_group, cv_squared" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_load_form_is_that_of_other_frameworks() -> None:
    """As Megatron-LM sums it (scores summed, not averaged, with both factors in front) for top_k choices a token, and
    E^2 times GShard's mean over the experts of c/S m.
    """
    rng = np.random.default_rng(1)
    tokens, experts, top_k = 11, 6, 2
    logits = rng.standard_normal((tokens, experts))
    counts = np.bincount(np.argsort(-logits, axis=1)[:, :top_k].ravel(), minlength=experts)
    scores = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    got = OPS["balance_loss"].ref(logits, counts, **form("load", "softmax"))
    summed = np.sum(scores.sum(0) * counts) * (experts * 0.3 / (tokens * tokens * top_k))
    np.testing.assert_allclose(got, summed, rtol=1e-12)
    gshard = np.mean(counts / (top_k * tokens) * scores.mean(0))
    np.testing.assert_allclose(got, 0.3 * experts**2 * gshard, rtol=1e-12)
