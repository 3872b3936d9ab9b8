"""The MoE references against a block written token by token in plain Python floats, over every property of a block."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from moe_attrs import ACTIVATION, DROPLESS, ROUTING

from moec.ir.types import BF16, F32, TensorType
from moec.ops import OPS
from moec.ops.moe import MoE
from moec.ops.routing import route

DEFAULT = {
    **ROUTING,
    **ACTIVATION,
    **DROPLESS,
    "top_k": 2,
    "weights_dtype": F32,
    "router_dtype": F32,
    "weights_on": "output",
}
GROUPED = {"groups": 4, "group_top_k": 2, "group_mask": "zero", "top_k": 3, "score": "sigmoid"}
CASES: dict[str, dict[str, Any]] = {
    "mixtral": {},
    "raw weights": {"renormalize": False},
    "epsilon": {"renormalize_eps": 0.25},
    "scaled": {"scale": 2.5},
    "softmax after": {"score_order": "after_topk", "renormalize": False, "scale": 1.5},
    "sigmoid": {"score": "sigmoid", "score_bias": True},
    "sigmoid after": {"score": "sigmoid", "score_order": "after_topk"},
    "groups by maximum": {**GROUPED, "group_score": "max"},
    "groups by two best": {**GROUPED, "group_score": "sum2", "score_bias": True, "scale": 2.5},
    "groups masked by -inf": {**GROUPED, "group_score": "sum2", "group_mask": "minus_inf", "score_bias": True},
    "weights on input": {"weights_on": "input"},
    "weights on activation": {"weights_on": "activation", "biases": True},
    "biases": {"biases": True},
    "interleaved": {"glu": "interleaved", "alpha": 1.702, "limit": 0.5, "up_offset": 1.0, "biases": True},
    "no glu": {"glu": "none", "activation": "relu"},
    "gelu": {"activation": "gelu"},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "sigmoid gate": {"activation": "sigmoid"},
    "identity": {"activation": "identity"},
    "capacity": {"capacity": 2, "capacity_scope": "tokens", "dropped": "zero"},
    "capacity of a sequence": {"capacity": 1, "capacity_scope": "sequence", "dropped": "zero"},
    "dropped tokens kept": {"capacity": 2, "capacity_scope": "tokens", "dropped": "input", "biases": True},
    "dropped tokens of a sequence kept": {
        "capacity": 1,
        "capacity_scope": "sequence",
        "dropped": "input",
        "weights_on": "activation",
        "biases": True,
        "top_k": 1,
        "renormalize": False,
    },
    "shared": {"shared": True},
    "shared gated": {"shared": True, "shared_gate": True},
    "router bias": {"router_bias": True},
}


def test_scores_that_round_to_the_same_choose_the_lower_expert() -> None:
    """Of two logits whose scores are one bf16 number the lower expert is chosen, though its logit is lower."""
    logits = np.array([[0.5, -1.0, 0.5004, -2.0]], np.float32)
    for score in ("softmax", "sigmoid"):
        attrs = {**DEFAULT, "score": score, "top_k": 1}
        assert route(logits, None, attrs)[1].tolist() == [[2]]
        weights, experts = route(logits, None, attrs | {"score_dtype": BF16, "renormalize": False})
        assert experts.tolist() == [[0]]
        assert weights[0, 0] == np.float32(weights[0, 0]).astype(BF16.carrier)


def weights_for(case: dict[str, Any], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Operands of an 8-expert block of hidden 6 and inner 5, the optional ones where the case asks for them."""
    width = 5 if case.get("glu") == "none" else 10
    made = {"router": (8, 6), "gate_up": (8, width, 6), "down": (8, 6, 5)}
    if case.get("score_bias"):
        made["score_bias"] = (8,)
    if case.get("router_bias"):
        made["router_bias"] = (8,)
    if case.get("biases"):
        made |= {"gate_up_bias": (8, width), "down_bias": (8, 6)}
    if case.get("shared"):
        made |= {"shared_gate_up": (2 * 7, 6), "shared_down": (6, 7)}
    if case.get("shared_gate"):
        made["shared_gate"] = (1, 6)
    return {name: rng.standard_normal(shape) for name, shape in made.items()}


def attributes(case: dict[str, Any]) -> dict[str, Any]:
    return DEFAULT | {k: v for k, v in case.items() if k in DEFAULT}


def logistic(v: float) -> float:
    return 1 / (1 + math.exp(-v))


ACTIVATIONS = {
    "relu": lambda v, a: max(v, 0.0),
    "silu": lambda v, a: v * logistic(a * v),
    "gelu": lambda v, a: v * (1 + math.erf(v / math.sqrt(2))) / 2,
    "gelu_tanh": lambda v, a: v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) / 2,
    "sigmoid": lambda v, a: logistic(v),
    "identity": lambda v, a: v,
}


def ffn(x: list[float], w1: Any, b1: Any, w2: Any, b2: Any, at: dict[str, Any], weight: float) -> list[float]:
    """One expert on one token, the routing weight applied where the attributes say."""
    act = ACTIVATIONS[at["activation"]]
    x = [v * weight for v in x] if at["weights_on"] == "input" else x
    h = [sum(a * b for a, b in zip(row, x, strict=True)) + c for row, c in zip(w1, b1, strict=True)]
    inner = len(w2[0])
    out = []
    for i in range(inner):
        if at["glu"] == "none":
            out.append(act(h[i], at["alpha"]))
            continue
        gate, up = (h[i], h[inner + i]) if at["glu"] == "chunked" else (h[2 * i], h[2 * i + 1])
        if at["limit"] is not None:
            gate, up = min(gate, at["limit"]), max(-at["limit"], min(up, at["limit"]))
        out.append(act(gate, at["alpha"]) * (up + at["up_offset"]))
    out = [v * weight for v in out] if at["weights_on"] == "activation" else out
    y = [sum(a * b for a, b in zip(row, out, strict=True)) + c for row, c in zip(w2, b2, strict=True)]
    return [v * weight for v in y] if at["weights_on"] == "output" else y


def chosen(logits: list[float], bias: list[float], at: dict[str, Any]) -> list[tuple[int, float]]:
    """The experts of one token and their weights."""
    experts = range(len(logits))
    if at["score"] == "softmax":
        total = sum(math.exp(v) for v in logits)
        scores = [math.exp(v) / total for v in logits]
    else:
        scores = [logistic(v) for v in logits]
    steer = [s + b for s, b in zip(scores if at["score_order"] == "before_topk" else logits, bias, strict=True)]
    if at["groups"] > 1:
        size = len(logits) // at["groups"]
        best = [sorted(steer[g * size : (g + 1) * size], reverse=True) for g in range(at["groups"])]
        worth = [sum(b[:2]) if at["group_score"] == "sum2" else b[0] for b in best]
        kept = sorted(range(at["groups"]), key=lambda g: (-worth[g], g))[: at["group_top_k"]]
        low = 0.0 if at["group_mask"] == "zero" else -math.inf
        steer = [s if e // size in kept else low for e, s in enumerate(steer)]
    picked = sorted(experts, key=lambda e: (-steer[e], e))[: at["top_k"]]
    if at["score_order"] == "after_topk" and at["score"] == "softmax":
        total = sum(math.exp(logits[e]) for e in picked)
        weights = [math.exp(logits[e]) / total for e in picked]
    else:
        weights = [scores[e] for e in picked]
    if at["renormalize"]:
        total = sum(weights) + at["renormalize_eps"]
        weights = [w / total for w in weights]
    return [(e, w * at["scale"]) for e, w in zip(picked, weights, strict=True)]


def block(x: np.ndarray, w: dict[str, np.ndarray], at: dict[str, Any], length: int) -> np.ndarray:
    """The block's output for tokens [T, H] in sequences of ``length``, one token and one expert at a time."""
    experts = len(w["router"])
    logits = x @ w["router"].T + w.get("router_bias", np.zeros(experts))
    b1 = w.get("gate_up_bias", np.zeros(w["gate_up"].shape[:2]))
    b2 = w.get("down_bias", np.zeros(w["down"].shape[:2]))
    taken, rows = [0] * experts, []
    for t in range(len(x)):
        y = [0.0] * x.shape[1]
        if at["capacity_scope"] == "sequence" and t % length == 0:
            taken = [0] * experts
        for e, p in chosen(list(logits[t]), list(w.get("score_bias", np.zeros(experts))), at):
            taken[e] += 1
            if at["capacity"] is None or taken[e] <= at["capacity"]:
                part = ffn(list(x[t]), w["gate_up"][e], b1[e], w["down"][e], b2[e], at, p)
                y = [a + b for a, b in zip(y, part, strict=True)]
            elif at["dropped"] == "input":
                y = [a + p * b for a, b in zip(y, x[t], strict=True)]
        if "shared_gate_up" in w:
            zeros = np.zeros(64)
            w1, w2 = w["shared_gate_up"], w["shared_down"]
            part = ffn(list(x[t]), w1, zeros[: len(w1)], w2, zeros[: len(w2)], at | {"weights_on": "none"}, 1.0)
            gate = logistic(float(x[t] @ w["shared_gate"][0])) if "shared_gate" in w else 1.0
            y = [a + gate * b for a, b in zip(y, part, strict=True)]
        rows.append(y)
    return np.array(rows).reshape(x.shape)


OPERANDS = [o.name for o in OPS["moe"].signature.operands]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tokens", [0, 1, 9])
def test_moe_equals_a_block_written_token_by_token(name: str, tokens: int) -> None:
    rng = np.random.default_rng(tokens)
    weights, at = weights_for(CASES[name], rng), attributes(CASES[name])
    x = rng.standard_normal((3, tokens // 3, 6) if tokens % 3 == 0 else (1, tokens, 6))
    y, logits = OPS["moe"].ref(x, *(weights.get(n) for n in OPERANDS[1:]), **at)
    expected = block(x.reshape(-1, 6), weights, at, x.shape[1])
    np.testing.assert_allclose(y, expected.reshape(x.shape), rtol=1e-11, atol=1e-12)
    assert logits.shape == (tokens, 8)


def test_every_property_of_a_block_has_a_case_that_tells_it_from_the_others() -> None:
    """Each case's output differs from every other case's that has the same weights: no attribute is ignored."""
    x = np.random.default_rng(5).standard_normal((3, 3, 6))
    outputs = {}
    for name, case in CASES.items():
        weights = weights_for(case, np.random.default_rng(1))
        outputs[name] = OPS["moe"].ref(x, *(weights.get(n) for n in OPERANDS[1:]), **attributes(case))[0]
    for a, b in itertools.combinations(outputs, 2):
        assert not np.allclose(outputs[a], outputs[b]), (a, b)


def test_attributes_of_a_capacity_that_contradict_one_another() -> None:
    shapes = [(3, 4, 6), (8, 6), (8, 10, 6), (8, 6, 5)]
    types = [TensorType(F32, s) for s in shapes]
    for change in ({"capacity": 2}, {"capacity_scope": "tokens"}, {"dropped": "zero"}):
        with pytest.raises(ValueError, match="'none' exactly when capacity is none"):
            MoE.shape(types, DEFAULT | change)
    sequence = DEFAULT | {"capacity": 2, "capacity_scope": "sequence", "dropped": "zero"}
    assert MoE.shape(types, sequence) == [(3, 4, 6), (12, 8)]
    with pytest.raises(ValueError, match="rank 3 at least"):
        MoE.shape([TensorType(F32, (12, 6)), *types[1:]], sequence)
    with pytest.raises(ValueError, match="dropped 'keep' is none of"):
        MoE.shape(types, sequence | {"dropped": "keep"})


def test_softmax_of_the_chosen_is_the_renormalised_softmax_of_all() -> None:
    x = np.random.default_rng(5).standard_normal((9, 6))
    weights = [weights_for({}, np.random.default_rng(1)).get(n) for n in OPERANDS[1:]]
    after = OPS["moe"].ref(x, *weights, **attributes({"score_order": "after_topk", "renormalize": False}))[0]
    np.testing.assert_allclose(after, OPS["moe"].ref(x, *weights, **DEFAULT)[0], rtol=1e-12)


def test_ties_go_to_the_lower_expert() -> None:
    at = {k: v for k, v in (DEFAULT | {"top_k": 3}).items() if k in OPS["gating"].attrs}
    weights, experts, counts = OPS["gating"].ref(np.zeros((4, 8)), None, **at)
    assert (experts == [0, 1, 2]).all()
    assert counts.tolist() == [4, 4, 4, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(weights, 1 / 3)


@pytest.mark.parametrize("tokens", [0, 1, 7])
@pytest.mark.parametrize("empty", [False, True])
def test_permute_groups_rows_by_expert_and_unpermute_undoes_it(tokens: int, empty: bool) -> None:
    rng = np.random.default_rng(tokens)
    experts = rng.integers(0, 2 if empty else 8, (tokens, 3)).astype(np.int32)
    counts = np.bincount(experts.ravel(), minlength=8).astype(np.int32)
    x = rng.standard_normal((tokens, 6))
    rows, positions = OPS["permute"].ref(x, experts, counts)
    assert sorted(positions.ravel()) == list(range(tokens * 3))
    by_row = np.empty(tokens * 3, np.int64)
    by_row[positions.ravel()] = experts.ravel()
    assert (np.diff(by_row) >= 0).all()
    np.testing.assert_array_equal(OPS["unpermute"].ref(rows, positions, None), x + x + x)


def test_grouped_matmul_refuses_counts_that_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="counts sum to 3, there are 4 rows"):
        OPS["grouped_matmul"].ref(np.ones((4, 2)), np.ones((2, 3, 2)), np.array([1, 2]))
