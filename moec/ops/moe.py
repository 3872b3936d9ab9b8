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

Array = np.ndarray

CHOICES = {**expert.CHOICES, "weights_on": ("output", "input", "activation")}
"""What each named property of a block may be, those of routing aside."""


@op(
    "moe(x: [*B, H], router: [E, H], gate_up: [E, F, H], down: [E, H, I], router_bias?: [E], score_bias?: [E], "
    "gate_up_bias?: [E, F], down_bias?: [E, H], shared_gate_up?: [G, H], shared_down?: [H, J], shared_gate?: [1, H], "
    f"*, {ROUTING}, router_dtype: dtype, weights_on: str, {ACTIVATION}, capacity: dim?) "
    "-> (y: any, logits: any)"
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
        check_choices(attrs, CHOICES)
        x, router = (t.dims for t in known(types)[:2])
        check_routing(attrs, router[0])
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
