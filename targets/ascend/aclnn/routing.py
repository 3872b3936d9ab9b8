"""Routing and dispatch of the library: top-k softmax gates, rows sorted by expert and back, with gradients."""

from __future__ import annotations

from moec.codegen.lower.base import Lowering
from moec.codegen.lower.histogram import count_into
from moec.ir.symbol import Dim
from moec.targets.ascend.aclnn.offer import NotOffered, Offer, boolean, floats, int64, offers

MOST_SLOTS = (1 << 24) - 2
"""Largest T*K of aclnnMoeTokenPermute (below 2^24 - 1)."""
MOST_K = 512
"""Largest top-k of the unpermute calls and of the gradients."""


def _flat(o: Offer, index: int) -> tuple[Dim, ...]:
    tokens, k = o.node.operand(index).type.dims
    return (tokens * k,)


@offers("gating")
def gating(o: Offer) -> None:
    node, a = o.node, o.node.attrs
    logits = node.operand(0)
    dtype = floats(node, logits.type.dtype.name, a["weights_dtype"].name)
    if len(node.operands) > 1 and node.operands[1] is not None:
        raise NotOffered("a bias on the choice: aclnnMoeGatingTopK is not in the headers of 8.1.RC1")
    if a["score"] != "softmax" or a["groups"] > 1:
        raise NotOffered("only softmax without groups: aclnnMoeGatingTopK is not in the headers of 8.1.RC1")
    if a["scale"] != 1.0:
        raise NotOffered(f"weights times {a['scale']}")
    if dtype != "f32" or a["score_dtype"].name != "f32":
        raise NotOffered("scores that are rounded to 16 bit")
    before = a["score_order"] == "before_topk"
    if before and a["renormalize"] and a["renormalize_eps"] != 0.0:
        raise NotOffered(f"a sum of weights plus {a['renormalize_eps']}")
    renorm = not before or a["renormalize"]  # softmax over all, renormalised over the chosen: softmax over the chosen
    experts = logits.type.dims[1]
    if not isinstance(experts, int) or a["top_k"] > 1024:
        raise NotOffered("a number of experts that is not known, or more than 1024 chosen")
    o.call(
        "aclnnMoeGatingTopKSoftmaxV2",
        results=("yOut", "expertIdxOut"),
        x=o.operand(0),
        finishedOptional=None,
        k=int64(a["top_k"]),
        renorm=int64(int(renorm)),
        outputSoftmaxResultFlag=boolean(False),
        yOut=o.result(0),
        expertIdxOut=o.result(1),
        softmaxResultOutOptional=None,
    )

    def counts(cx: Lowering) -> None:
        count_into(cx, node, cx.result(node, 1), "i32", node.results[1].type.dims, experts, cx.result(node, 2))

    o.kernel(counts)


@offers("permute")
def permute(o: Offer) -> None:
    node = o.node
    floats(node, node.operand(0).type.dtype.name)
    slots = _flat(o, 1)
    if isinstance(slots[0], int) and slots[0] > MOST_SLOTS:
        raise NotOffered(f"aclnnMoeTokenPermute sorts up to {MOST_SLOTS} slots, this has {slots[0]}")
    o.call(
        "aclnnMoeTokenPermute",
        results=("permuteTokensOut", "sortedIndicesOut"),
        tokens=o.operand(0),
        indices=o.operand(1),
        numOutTokens=int64(0),
        paddedMode=boolean(False),
        permuteTokensOut=o.result(0),
        sortedIndicesOut=o.result(1, slots),
    )


@offers("unpermute")
def unpermute(o: Offer) -> None:
    node = o.node
    weighted = len(node.operands) > 2 and node.operands[2] is not None
    dtype = floats(node, node.operand(0).type.dtype.name, node.result.type.dtype.name)
    k = node.operand(1).type.dims[1]
    if not isinstance(k, int) or k > MOST_K:
        raise NotOffered(f"a top-k that is not known or above {MOST_K}")
    rows, places = o.operand(0), o.operand(1, _flat(o, 1))
    if not weighted:
        o.call(
            "aclnnMoeTokenPermuteGrad",
            results=("out",),
            permutedOutputGrad=rows,
            sortedIndices=places,
            numTopk=int64(k),
            paddedMode=boolean(False),
            out=o.result(0),
        )
        return
    if node.operand(2).type.dtype.name not in (dtype, "f32"):
        raise NotOffered(f"weights of {node.operand(2).type.dtype} with rows of {dtype}")
    o.call(
        "aclnnMoeTokenUnpermute",
        results=("out",),
        permutedTokens=rows,
        sortedIndices=places,
        probsOptional=o.operand(2),
        paddedMode=boolean(False),
        restoreShapeOptional=None,
        out=o.result(0),
    )


@offers("unpermute_grad")
def unpermute_grad(o: Offer) -> None:
    node = o.node
    rows, weights = node.operands[1], (*node.operands, None)[3]
    if rows is None or weights is None:
        raise NotOffered("a gradient by the rows alone: aclnnMoeTokenUnpermuteGrad needs rows and weights")
    floats(node, node.operand(0).type.dtype.name, rows.type.dtype.name, node.results[0].type.dtype.name)
    if weights.type.dtype != node.results[1].type.dtype:
        raise NotOffered("weights and their gradient of different dtypes")
    k = node.operand(2).type.dims[1]
    if not isinstance(k, int) or k > MOST_K:
        raise NotOffered(f"a top-k that is not known or above {MOST_K}")
    o.call(
        "aclnnMoeTokenUnpermuteGrad",
        results=("permutedTokensGradOut", "probsGradOut"),
        permutedTokens=o.operand(1),
        unpermutedTokensGrad=o.operand(0),
        sortedIndices=o.operand(2, _flat(o, 2)),
        probsOptional=o.operand(3),
        paddedMode=boolean(False),
        restoreShapeOptional=None,
        permutedTokensGradOut=o.result(0),
        probsGradOut=o.result(1),
    )
