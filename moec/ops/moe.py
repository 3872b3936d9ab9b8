"""The mixture-of-experts level: the whole block in canonical form and the five steps it expands into.

Weights are stored ``[out, in]`` per expert, as torch.nn.Linear does. Every property of a block is an attribute that
must be given:
two models that differ in any of them never look alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moec.ir.symbol import Dim, Shape, exact_div
from moec.ir.types import DType
from moec.ops.elementwise import gelu, sigmoid, silu
from moec.ops.index import stable_argsort
from moec.ops.reduce import softmax
from moec.ops.registry import Types, op
from moec.ops.shapes import known

Array = np.ndarray

ROUTING = (
    "top_k: int, score: str, score_order: str, groups: int, group_top_k: int, group_score: str, group_mask: str, "
    "renormalize: bool, renormalize_eps: float, scale: float, weights_dtype: dtype"
)
ACTIVATION = "activation: str, glu: str, alpha: float, limit: float?, up_offset: float"

CHOICES = {
    "score": ("softmax", "sigmoid"),
    "score_order": ("before_topk", "after_topk"),
    "group_score": ("none", "max", "sum2"),
    "group_mask": ("none", "zero", "minus_inf"),
    "activation": ("silu", "gelu", "gelu_tanh", "relu", "sigmoid", "identity"),
    "glu": ("none", "chunked", "interleaved"),
    "weights_on": ("output", "input", "activation"),
}
"""What each named property may be."""

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": silu,
    "gelu": lambda x: gelu(x, approximate="none"),
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "identity": lambda x: x,
}


def check_choices(attrs: dict[str, Any]) -> None:
    """ValueError for a named property outside its choices, or group settings that contradict one another."""
    for name, allowed in CHOICES.items():
        if name in attrs and attrs[name] not in allowed:
            raise ValueError(f"{name} '{attrs[name]}' is none of {', '.join(allowed)}")
    grouped = attrs.get("groups", 1) > 1
    if "groups" in attrs and any((attrs[n] != "none") != grouped for n in ("group_score", "group_mask")):
        raise ValueError("group_score and group_mask are 'none' exactly when groups is 1")


def rounded(x: Array, dtype: DType) -> Array:
    """x rounded to ``dtype`` and back in the compute dtype; in fp64 mode x itself."""
    return x if x.dtype == np.float64 else x.astype(dtype.carrier).astype(x.dtype)


def _score(logits: Array, kind: str) -> Array:
    return softmax(logits, axis=-1) if kind == "softmax" else sigmoid(logits)


def _group_limited(choice: Array, groups: int, keep: int, how: str, mask: str) -> Array:
    """Scores in which only the ``keep`` best groups may be chosen; a group counts by its maximum or the sum of its
    two best.
    """
    tokens, experts = choice.shape
    split = choice.reshape(tokens, groups, experts // groups)
    best = -np.sort(-split, axis=-1)
    worth = best[..., 0] if how == "max" else best[..., :2].sum(-1)
    allowed = np.zeros((tokens, groups), bool)
    np.put_along_axis(allowed, stable_argsort(worth, 1, True)[:, :keep], True, axis=1)
    fill = choice.dtype.type(0 if mask == "zero" else -np.inf)
    return np.where(allowed[..., None], split, fill).reshape(tokens, experts)


def route(logits: Array, score_bias: Array | None, attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Routing weights [T, K] and experts [T, K] (i32) of logits [T, E] under the attributes of ``ROUTING``.

    ``before_topk`` scores all experts and chooses by score (+ bias); ``after_topk`` chooses by logit (+ bias) and
    scores the chosen. The
    bias only steers the choice (DeepSeek-V3, arXiv 2412.19437, eq. 16). Ties go to the lower expert.
    """
    before = attrs["score_order"] == "before_topk"
    scores = _score(logits, attrs["score"]) if before else logits
    choice = scores if score_bias is None else scores + score_bias
    if attrs["groups"] > 1:
        choice = _group_limited(
            choice, attrs["groups"], attrs["group_top_k"], attrs["group_score"], attrs["group_mask"]
        )
    experts = stable_argsort(choice, 1, True)[:, : attrs["top_k"]]
    weights = np.take_along_axis(scores, experts, axis=1)
    if not before:
        weights = _score(weights, attrs["score"])
    if attrs["renormalize"]:
        weights = weights / (weights.sum(-1, keepdims=True) + weights.dtype.type(attrs["renormalize_eps"]))
    return weights * weights.dtype.type(attrs["scale"]), experts.astype(np.int32)


@op(f"gating(logits: [T, E], score_bias?: [E], *, {ROUTING}) -> (weights: any, experts: any, counts: any)")
class Gating:
    """Routing: weights [T, K] in weights_dtype, experts [T, K] i32 (ties to the lower), and tokens per expert [E] i32.

    scores = softmax or sigmoid of the logits; the top_k of scores + score_bias (within the best groups) are chosen;
    weights = scores (/ (their sum + renormalize_eps)) * scale.
    """

    dtype = ("=weights_dtype", "!i32", "!i32")
    cost = "vector"
    traits = ("index",)

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_choices(attrs)
        tokens, experts = known(types)[0].dims
        if isinstance(experts, int) and not 1 <= attrs["top_k"] <= experts:
            raise ValueError(f"top_k {attrs['top_k']} of {experts} experts")
        if isinstance(experts, int) and (attrs["groups"] < 1 or experts % attrs["groups"]):
            raise ValueError(f"{experts} experts do not split into {attrs['groups']} groups")
        chosen = (tokens, attrs["top_k"])
        return [chosen, chosen, (experts,)]

    @staticmethod
    def ref(logits: Array, score_bias: Array | None = None, **attrs: Any) -> tuple[Array, Array, Array]:
        weights, experts = route(logits, score_bias, attrs)
        return weights, experts, np.bincount(experts.ravel(), minlength=logits.shape[1]).astype(np.int32)


def sort_positions(experts: Array) -> Array:
    """Where each token-slot goes when slots are sorted by expert, stable in (token, slot): positions [T, K] i32."""
    order = np.argsort(experts.ravel(), kind="stable")
    positions = np.empty(order.size, np.int32)
    positions[order] = np.arange(order.size, dtype=np.int32)
    return positions.reshape(experts.shape)


@op("permute(x: [T, H], experts: [T, K], counts: [E]) -> (rows: any, positions: any)")
class Permute:
    """Rows of x sorted by expert: rows[positions[t, k]] = x[t], stable in (t, k). rows [T*K, H], positions [T, K]
    i32.
    """

    dtype = ("x", "!i32")
    cost = "copy"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        (tokens, hidden), (_, k) = known(types)[0].dims, known(types)[1].dims
        return [(tokens * k, hidden), (tokens, k)]

    @staticmethod
    def ref(x: Array, experts: Array, counts: Array) -> tuple[Array, Array]:
        positions = sort_positions(experts)
        rows = np.empty((experts.size, x.shape[1]), x.dtype)
        rows[positions.ravel()] = np.repeat(x, experts.shape[1], axis=0)
        return rows, positions


@op("grouped_matmul(rows: [S, K], weight: [E, N, K], counts: [E], bias?: [E, N]) -> [S, N]")
class GroupedMatMul:
    """The counts[e] rows of expert e times weight[e] transposed (+ bias[e]); rows stand sorted by expert, counts sum
    to S.
    """

    dtype = "rows"
    cost = "cube"

    @staticmethod
    def ref(rows: Array, weight: Array, counts: Array, bias: Array | None = None) -> Array:
        out = np.zeros((rows.shape[0], weight.shape[1]), rows.dtype)
        ends = np.cumsum(counts)
        if counts.size and (ends[-1] != rows.shape[0] or counts.min() < 0):
            raise ValueError(f"counts sum to {ends[-1]}, there are {rows.shape[0]} rows")
        for e, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
            if end > start:
                out[start:end] = rows[start:end] @ weight[e].T
                if bias is not None:
                    out[start:end] += bias[e]
        return out


def activate(h: Array, activation: str, glu: str, alpha: float, limit: float | None, up_offset: float) -> Array:
    """act(gate) * (up + up_offset), gate and up being the halves (chunked) or even/odd columns (interleaved) of h;
    act(h) without glu.

    alpha scales the argument of silu's sigmoid; limit clamps gate from above and up on both sides (GPT-OSS).
    """
    if glu == "none":
        gate, up = h, None
    elif glu == "chunked":
        gate, up = np.split(h, 2, axis=-1)
    else:
        gate, up = h[..., 0::2], h[..., 1::2]
    if limit is not None:
        gate = np.minimum(gate, gate.dtype.type(limit))
        up = None if up is None else np.clip(up, up.dtype.type(-limit), up.dtype.type(limit))
    if activation == "silu" and alpha != 1.0:
        y = gate * sigmoid(gate * gate.dtype.type(alpha))
    else:
        y = _ACTIVATIONS[activation](gate)
    return y if up is None else y * (up + up.dtype.type(up_offset))


@op(f"swiglu(h: [*B, F], *, {ACTIVATION}) -> any")
class SwiGLU:
    """act(gate) * (up + up_offset) with gate and up taken from h's last dimension as ``glu`` says; act(h) if it says
    "none".
    """

    dtype = "h"
    cost = "vector"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_choices(attrs)
        *lead, width = known(types)[0].dims
        inner = width if attrs["glu"] == "none" else exact_div(width, 2)
        if inner is None:
            raise ValueError(f"gate and up halves of a width of {width}")
        return [(*lead, inner)]

    @staticmethod
    def ref(h: Array, *, activation: str, glu: str, alpha: float, limit: float | None, up_offset: float) -> Array:
        return activate(h, activation, glu, alpha, limit, up_offset)


@op("unpermute(rows: [S, H], positions: [T, K], weights?: [T, K]) -> [T, H]")
class Unpermute:
    """y[t] = sum over k of weights[t, k] * rows[positions[t, k]], accumulated in f32 in the order k = 0..K-1 and
    rounded once.

    Without weights each row counts once.
    """

    dtype = "rows"
    cost = "vector"

    @staticmethod
    def ref(rows: Array, positions: Array, weights: Array | None = None) -> Array:
        out = np.zeros((positions.shape[0], rows.shape[1]), rows.dtype)
        for k in range(positions.shape[1]):
            part = rows[positions[:, k]]
            out += part if weights is None else part * weights[:, k : k + 1].astype(rows.dtype)
        return out


@op(
    "moe(x: [*B, H], router: [E, H], gate_up: [E, F, H], down: [E, H, I], router_bias?: [E], score_bias?: [E], "
    "gate_up_bias?: [E, F], down_bias?: [E, H], shared_gate_up?: [G, H], shared_down?: [H, J], shared_gate?: [1, H], *, "
    f"{ROUTING}, router_dtype: dtype, weights_on: str, {ACTIVATION}, capacity: dim?) -> (y: any, logits: any)"
)
class MoE:
    """A mixture-of-experts block: y[t] = sum over chosen e of w[t, e] * expert_e(x[t]), plus the shared expert.

    expert_e(x) = down[e] act(gate_up[e] x + gate_up_bias[e]) + down_bias[e], the shared expert likewise and times
    sigmoid(shared_gate x) if given; logits = x router^T + router_bias, [T, E] in router_dtype. ``weights_on`` says
    where w is applied: to the expert's output, its input, or the activation before ``down``. ``capacity`` is how many
    tokens an expert takes (later ones are dropped), none for dropless. F is 2 I, or I where ``glu`` is "none".
    """

    dtype = ("x", "=router_dtype")
    cost = "composite"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_choices(attrs)
        x, router = (t.dims for t in known(types)[:2])
        for name, outer, inner in _inner_widths(types):
            if outer != (inner if attrs["glu"] == "none" else 2 * inner):
                raise ValueError(f"{name} has {outer} rows for an inner width of {inner} with glu '{attrs['glu']}'")
        tokens: Dim = 1
        for d in x[:-1]:
            tokens = tokens * d
        return [x, (tokens, router[0])]

    @staticmethod
    def ref(
        x: Array,
        router: Array,
        gate_up: Array,
        down: Array,
        router_bias: Array | None = None,
        score_bias: Array | None = None,
        gate_up_bias: Array | None = None,
        down_bias: Array | None = None,
        shared_gate_up: Array | None = None,
        shared_down: Array | None = None,
        shared_gate: Array | None = None,
        **attrs: Any,
    ) -> tuple[Array, Array]:
        act = {k: attrs[k] for k in ("activation", "glu", "alpha", "limit", "up_offset")}
        tokens = x.reshape(-1, x.shape[-1])
        logits = tokens @ router.T
        logits = rounded(logits if router_bias is None else logits + router_bias, attrs["router_dtype"])
        weights, experts = route(logits, score_bias, attrs)
        weights = rounded(weights, attrs["weights_dtype"]) * _within_capacity(experts, attrs["capacity"])
        y = np.zeros_like(tokens)
        for e in range(router.shape[0]):
            t, k = np.nonzero(experts == e)
            if t.size:
                w = weights[t, k][:, None].astype(tokens.dtype)
                h = (tokens[t] * w if attrs["weights_on"] == "input" else tokens[t]) @ gate_up[e].T
                h = activate(h if gate_up_bias is None else h + gate_up_bias[e], **act)
                h = (h * w if attrs["weights_on"] == "activation" else h) @ down[e].T
                h = h if down_bias is None else h + down_bias[e]
                y[t] += h * w if attrs["weights_on"] == "output" else h
        if shared_gate_up is not None and shared_down is not None:
            s = activate(tokens @ shared_gate_up.T, **act) @ shared_down.T
            y += s if shared_gate is None else s * sigmoid(tokens @ shared_gate.T)
        return y.reshape(x.shape), logits


def _inner_widths(types: Types) -> list[tuple[str, Any, Any]]:
    gate_up, down, shared_in, shared_out = (types[i] if i < len(types) else None for i in (2, 3, 8, 9))
    rows = []
    if gate_up is not None and down is not None:
        rows.append(("gate_up", gate_up.dims[1], down.dims[2]))
    if shared_in is not None and shared_out is not None:
        rows.append(("shared_gate_up", shared_in.dims[0], shared_out.dims[1]))
    return rows


def _within_capacity(experts: Array, capacity: int | None) -> Array:
    """1 for a token-slot among the first ``capacity`` of its expert in (token, slot) order, else 0."""
    if capacity is None:
        return np.ones(experts.shape, np.int32)
    positions = sort_positions(experts)
    counts = np.bincount(experts.ravel(), minlength=int(experts.max(initial=0)) + 1)
    return (positions - (np.cumsum(counts) - counts)[experts] < capacity).astype(np.int32)
