"""Scaled dot-product attention in whatever spelling an exporter gave it, recovered as one ``attention`` node.

From each softmax over keys: down to the product of queries and keys through what scales, caps and masks the scores
(``scores``), on to the product with the values, and from both products back through views to queries, keys and values
with their own heads (``operands``, ``views``). A mask that is exactly causal or a window becomes attributes (``masks``,
``conditions``), any other stays an operand. The whole is evaluated on random operands before it takes the place of the
nodes. What only looks like attention stays as it is and is reported with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from moec.ir.graph import Graph, Module, Node, merged_origin
from moec.ops.build import Builder
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.inline import inline_calls
from moec.passes.recover_attention.assemble import Attention, assembled, refined
from moec.passes.recover_attention.filled import join_slices
from moec.passes.recover_attention.masks import Masks
from moec.passes.recover_attention.scores import NearMiss, NotAttention
from moec.passes.region import Mismatch, between, check_same, copied, erase_dead, sizes_for, standing

SMALL = 8
"""Calls of functions of at most this many nodes, all of them views, are looked through."""

SCORES_READ_ELSEWHERE = (
    "the scores are read by others on the way to the softmax, for whom they would be computed a second time"
)

VIEWS = frozenset(("reshape", "transpose", "expand", "tile", "slice"))


@register_pass
class RecoverAttention(Pass):
    """Recover scaled dot-product attention as one ``attention`` node each, whatever way it is spelt."""

    name = "recover-attention"

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        if any(n.op == "softmax" for n in module.nodes()):
            inline_calls(module, result, lambda fn: len(fn) <= SMALL and all(n.op in VIEWS for n in fn))
        masks = Masks(module)
        join_slices(module, masks, result)
        for graph in module.functions.values():
            for node in [n for n in graph if n.op == "softmax" or (n.op == "attention" and len(n.operands) < 6)]:
                if node.graph is graph:
                    recover(node, graph, module, masks, result)
        return result


def recover(softmax: Node, graph: Graph, module: Module, masks: Masks, result: Result) -> None:
    """Put an ``attention`` node in the place of what ``softmax`` is part of, or report why not.

    An ``attention`` node in its place is put in the form that has most as attributes.
    """
    try:
        found: Attention | None
        if softmax.op == "attention":
            found = refined(softmax, masks, module.symbols)
        else:
            found = assembled(softmax, masks, module.symbols)
        if found is None:
            return
        nodes = proved(found, module)
    except NotAttention:
        return
    except NearMiss as reason:
        result.miss(RecoverAttention.name, str(reason), _blamed(softmax, reason.nodes), graph)
        return
    except Mismatch as reason:
        result.miss(RecoverAttention.name, str(reason), [softmax], graph)
        return
    out = found.output
    repeated = [n for n in standing(nodes, out) if n.op == "matmul"]
    if repeated:
        result.miss(RecoverAttention.name, SCORES_READ_ELSEWHERE, _blamed(softmax, repeated), graph)
        return
    origin = merged_origin([softmax, *nodes], RecoverAttention.name)
    new = found.build(Builder(graph, out.producer, origin), {v: v for v in found.inputs})
    new.name = out.name
    assert out.producer is not None
    out.replace_with(new)
    erase_dead(graph, out.producer)
    result.apply(RecoverAttention.name, origin, graph)


def _blamed(softmax: Node, nodes: Sequence[Node]) -> list[Node]:
    """The softmax, which names the place, and what is to blame."""
    return list(dict.fromkeys([softmax, *nodes]))


def proved(found: Attention, module: Module) -> list[Node]:
    """The nodes that the attention stands for. Raises Mismatch where it does not compute the same."""
    nodes = between([found.output], list(found.inputs))
    env = sizes_for([*found.inputs, *(v for n in nodes for v in n.results)])
    check_same(copied(nodes, found.output), found.build, found.inputs, env, module.symbols)
    return nodes
