"""From what was found to the canonical node: all experts alike, every attribute bound, weights stacked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from moec.ir.graph import Node, Value
from moec.ops.build import Builder
from moec.ops.registry import opdef
from moec.passes.recover_moe.contents import Combined, Tree
from moec.passes.recover_moe.ffn import FFN, NoExpert, routed, shared
from moec.passes.recover_moe.router import Router
from moec.passes.recover_moe.static import Ref, Statics, changed
from moec.passes.recover_moe.weighting import weighting


class Incomplete(Exception):
    """Not every expert of the router has a body."""


@dataclass
class Block:
    """A block that was found: operands of the canonical node by name, and its attributes."""

    operands: dict[str, Ref]
    attrs: dict[str, Any]

    def build(self, b: Builder, x: Value, prefix: str) -> Node:
        """The ``moe`` node on ``x`` with weights named after ``prefix``."""
        values: list[Value | None] = [x]
        for declared in opdef("moe").signature.operands[1:]:
            ref = self.operands.get(declared.name)
            values.append(None if ref is None else ref.build(b, f"{prefix}.{declared.name}"))
        return b.node("moe", *values, **self.attrs)


def assembled(router: Router, combined: Combined, statics: Statics) -> Block:
    """The block that these parts make. Raises Incomplete, NoExpert or NoRouter with the reason."""
    check_complete(combined, router.expert_count)
    experts = _experts(combined.parts, router.expert_count)
    operands: dict[str, Ref | None] = {
        "router": router.weight,
        "gate_up": experts.gate_up,
        "down": experts.down,
        "router_bias": router.bias,
        "score_bias": router.score_bias,
        "gate_up_bias": experts.gate_up_bias,
        "down_bias": experts.down_bias,
    }
    if combined.shared is not None:
        extra = shared(combined.shared)
        if extra.activation != experts.activation:
            raise NoExpert(f"the shared expert has the activation {extra.activation}, the others {experts.activation}")
        operands |= {"shared_gate_up": extra.gate_up, "shared_down": extra.down, "shared_gate": extra.gate}
    limit = combined.limit
    attrs = {
        "top_k": router.top_k,
        **router.groups,
        **weighting(router, experts.route, statics, combined.factor),
        **experts.activation,
        "router_dtype": router.logits.type.dtype,
        "weights_on": experts.weights_on,
        "capacity": None if limit is None else limit.capacity,
        "capacity_scope": "none" if limit is None else limit.scope,
        "dropped": "none" if limit is None else combined.dropped,
    }
    return Block({name: ref for name, ref in operands.items() if ref is not None}, attrs)


def check_complete(combined: Combined, count: int) -> None:
    """Raise Incomplete where experts are missing or numbered by data."""
    parts = combined.parts
    if "all" in parts and len(parts) == 1:
        return
    by_data = [e for e in parts if isinstance(e, Value)]
    if by_data:
        raise Incomplete(
            f"the expert number is itself data in all {len(by_data)} bodies (the i-th expert that got a token, not "
            "expert i): the file holds what the tracer saw, it is no mixture of all "
            f"{count} experts" + (f"; {count - len(by_data)} are missing" if len(by_data) < count else "")
        )
    found = sorted(e for e in parts if isinstance(e, int))
    missing = [e for e in range(count) if e not in parts]
    if missing or len(found) != count:
        raise Incomplete(
            f"router has {count} columns, bodies found for experts {', '.join(map(str, found))}; "
            f"missing {', '.join(map(str, missing))}"
        )


def _experts(parts: dict[Any, Tree], count: int) -> FFN:
    """The experts as one, with stacked weights."""
    if "all" in parts:
        return _with_rank(routed(parts["all"]), 3)
    each = [_with_rank(routed(parts[e]), 2) for e in range(count)]
    first = each[0]
    for e, other in enumerate(each):
        alike = (other.activation, other.weights_on) == (first.activation, first.weights_on)
        if not alike or other.route is not first.route or _shapes(other) != _shapes(first):
            raise NoExpert(f"expert {e} is not computed as expert 0 is")
    biases = [[r for r in column if r is not None] for column in zip(*map(_biases, each), strict=True)]
    gate_up_bias, down_bias = (changed("stack", *column) if column else None for column in biases)
    return replace(
        first,
        gate_up=changed("stack", *(f.gate_up for f in each)),
        down=changed("stack", *(f.down for f in each)),
        gate_up_bias=gate_up_bias,
        down_bias=down_bias,
    )


def _biases(ffn: FFN) -> tuple[Ref | None, Ref | None]:
    return ffn.gate_up_bias, ffn.down_bias


def _shapes(ffn: FFN) -> list[tuple[int, ...] | None]:
    refs = [ffn.gate_up, ffn.down, ffn.gate_up_bias, ffn.down_bias]
    return [None if r is None else r.shape for r in refs]


def _with_rank(ffn: FFN, rank: int) -> FFN:
    if len(ffn.gate_up.shape) != rank or len(ffn.down.shape) != rank:
        raise NoExpert(f"the experts' weights have shapes {ffn.gate_up.shape} and {ffn.down.shape}")
    return ffn
