"""The mixture-of-experts block as one op in canonical form.

Every property of a block is an attribute that must be given: two models that differ in any of them never look alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.symbol import Dim, Shape
from moec.ops import experts as expert
from moec.ops.elementwise import sigmoid
from moec.ops.experts import ACTIVATION, activate, sort_positions
from moec.ops.registry import Types, op
from moec.ops.routing import ROUTING, check_choices, check_routing, rounded, route
from moec.ops.shapes import known
from moec.ops.tape import no_grad

Array = np.ndarray

CHOICES = {
    **expert.CHOICES,
    "weights_on": ("output", "input", "activation"),
    "capacity_scope": ("none", "tokens", "sequence"),
    "dropped": ("none", "zero", "input"),
}
"""What each named property of a block may be, those of routing aside."""


@op(
    "moe(x: [*B, H], router: [E, H], gate_up: [E, F, H], down: [E, H, I], router_bias?: [E], score_bias?: [E], "
    "gate_up_bias?: [E, F], down_bias?: [E, H], shared_gate_up?: [G, H], shared_down?: [H, J], shared_gate?: [1, H], "
    f"*, {ROUTING}, router_dtype: dtype, weights_on: str, {ACTIVATION}, capacity: dim?, "
    "capacity_scope: str, dropped: str) "
    "-> (y: any, logits: any)"
)
class MoE:
    """A mixture-of-experts block: y[t] = sum over chosen e of w[t, e] * expert_e(x[t]), plus the shared expert.

    expert_e(x) = down[e] act(gate_up[e] x + gate_up_bias[e]) + down_bias[e], the shared expert likewise and times
    sigmoid(shared_gate x) if given; logits = x router^T + router_bias, [T, E] in router_dtype. ``weights_on`` says
    where w is applied: to the expert's output, its input, or the activation before ``down``. F is 2 I, or I where
    ``glu`` is "none".

    ``capacity`` is how many slots an expert takes in (token, choice) order, none for dropless; ``capacity_scope`` says
    of what: of all "tokens", or of each "sequence" (the last dimension of B; rank of x at least 3). A slot above it
    adds nothing (``dropped`` "zero": GShard, arXiv 2006.16668) or, "input", w x[t] as an expert that changes nothing
    would (Switch Transformers in transformers 4.51). Both are "none" exactly where capacity is none.
    """

    dtype = ("x", "=router_dtype")
    cost = "composite"
    grad = no_grad("a block is differentiated as the steps that expand-moe makes of it")

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        check_choices(attrs, CHOICES)
        x, router = (t.dims for t in known(types)[:2])
        check_routing(attrs, router[0])
        _check_capacity(attrs, len(x))
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
        weights = rounded(weights, attrs["weights_dtype"])
        kept = _within_capacity(experts, x.shape[-2] if x.ndim > 1 else 1, attrs["capacity"], attrs["capacity_scope"])
        y = np.zeros_like(tokens)
        if attrs["dropped"] == "input":
            y += tokens * (weights * ~kept).sum(-1, keepdims=True).astype(tokens.dtype)
        for e in range(router.shape[0]):
            t, k = np.nonzero((experts == e) & kept)
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


def _check_capacity(attrs: dict[str, Any], rank: int) -> None:
    """ValueError where the attributes of the capacity contradict one another or the rank of x."""
    dropless = attrs["capacity"] is None
    if any((attrs[n] == "none") != dropless for n in ("capacity_scope", "dropped")):
        raise ValueError("capacity_scope and dropped are 'none' exactly when capacity is none")
    if attrs["capacity_scope"] == "sequence" and rank < 3:
        raise ValueError(f"capacity_scope 'sequence' needs x of rank 3 at least ([*B, S, H]), not {rank}")


def _within_capacity(experts: Array, length: int, capacity: int | None, scope: str) -> Array:
    """Whether a slot [T, K] is among the first ``capacity`` of its expert, of all tokens or of its sequence of
    ``length``.
    """
    if capacity is None:
        return np.ones(experts.shape, bool)
    sequence = np.arange(len(experts)) // length if scope == "sequence" else np.zeros(len(experts), int)
    key = experts + (int(experts.max(initial=0)) + 1) * sequence[:, None]
    counts = np.bincount(key.ravel(), minlength=1)
    return np.asarray(sort_positions(key) - (np.cumsum(counts) - counts)[key] < capacity)
