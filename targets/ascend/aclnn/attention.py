"""Fused attention of the library, forward and backward, in layout [B, N, S, D]."""

from __future__ import annotations

import numpy as np

from moec.codegen.operator_call import Argument, Integers, View
from moec.ir.data import ArrayData
from moec.ir.graph import Node
from moec.ir.symbol import Dim
from moec.ir.types import BOOL
from moec.targets.ascend.aclnn.offer import NotOffered, Offer, data_type, double, floats, int64, offers

COMPRESSED = 2048
"""Rows and columns of the mask that a causal call takes, 1 above the diagonal."""
ALL, FROM_UPPER_LEFT, FROM_LOWER_RIGHT = 0, 2, 3
"""Sparse modes: every key, causal from the upper left corner, causal from the lower right one."""
SIDE_BY_SIDE = 8
"""Copies of each row's maximum and sum that the library writes and reads."""
WIDEST, MOST_HEADS = 768, 256


def _extras(node: Node, mask_at: int) -> None:
    """NotOffered where an optional operand or attribute is there that the calls of 8.1.RC1 do not take."""
    there = [i for i, v in enumerate(node.operands[mask_at:]) if v is not None]
    names = ("a mask", "sinks", "a rotary part of its own", "a rotary part of its own", "packed sequences")
    if there:
        why = {
            0: "a mask added to scores is scaled with them, one of truth values means the opposite",
            1: "aclnnFlashAttentionScoreV3 is not in the headers of 8.1.RC1",
            4: "the library takes them in layout TND only",
        }.get(there[0], "aclnnFlashAttentionScoreV4 is not in the headers of 8.1.RC1")
        raise NotOffered(f"{names[there[0]]}: {why}")
    a = node.attrs
    if a["window"] is not None or a["softcap"] is not None:
        raise NotOffered("a window or a soft cap")


def _mode(node: Node) -> int:
    if not node.attrs["causal"]:
        return ALL
    queries, keys, offset = node.operand(0).type.dims[2], node.operand(1).type.dims[2], node.attrs["offset"]
    if offset == 0:
        return FROM_UPPER_LEFT
    if offset == keys - queries:
        return FROM_LOWER_RIGHT
    raise NotOffered(f"causal with the first query at key {offset}")


def _sizes(node: Node) -> tuple[Dim, int, Dim]:
    """Batch, heads, queries. NotOffered where the library's limits do not hold."""
    q, v = node.operand(0), node.operand(2)
    batch, heads, queries, width = q.type.dims
    values = v.type.dims[3]
    floats(node, *(node.operand(i).type.dtype.name for i in range(3)))
    if not all(isinstance(d, int) for d in (heads, width, values)):
        raise NotOffered("heads or widths that are not known")
    assert isinstance(heads, int) and isinstance(width, int) and isinstance(values, int)
    if heads > MOST_HEADS or width > WIDEST or values > width:
        raise NotOffered(
            f"{heads} heads of width {width} and {values}: it takes up to {MOST_HEADS} of {WIDEST}, v no wider"
        )
    return batch, heads, queries


def _mask(o: Offer, mode: int) -> View | None:
    if mode == ALL:
        return None
    ones = np.triu(np.ones((COMPRESSED, COMPRESSED), bool), 1)
    return o.table("compressed_causal_mask", ArrayData(ones, BOOL))


def _settings(node: Node, heads: int, mode: int) -> dict[str, Argument]:
    longest = 2**31 - 1
    return {
        "scaleValue": double(node.attrs["scale"]),
        "keepProb": double(1.0),
        "preTokens": int64(longest),
        "nextTokens": int64(longest if mode == ALL else 0),
        "headNum": int64(heads),
        "inputLayout": "BNSD",
        "innerPrecise": int64(0),
        "sparseMode": int64(mode),
    }


def _forward(o: Offer, most: View, total: View) -> None:
    node = o.node
    _extras(node, 3)
    _, heads, _ = _sizes(node)
    mode = _mode(node)
    o.call(
        "aclnnFlashAttentionScore",
        results=("softmaxMaxOut", "softmaxSumOut", "attentionOutOut"),
        query=o.operand(0),
        key=o.operand(1),
        value=o.operand(2),
        realShiftOptional=None,
        dropMaskOptional=None,
        paddingMaskOptional=None,
        attenMaskOptional=_mask(o, mode),
        prefixOptional=None,
        **_settings(node, heads, mode),
        softmaxMaxOut=most,
        softmaxSumOut=total,
        softmaxOutOut=None,
        attentionOutOut=o.result(0),
    )


def _wide(o: Offer, name: str) -> View:
    batch, heads, queries, _ = o.node.operand(0).type.dims
    return o.scratch(name, "f32", (batch, heads, queries, SIDE_BY_SIDE))


@offers("attention")
def attention(o: Offer) -> None:
    _forward(o, _wide(o, "softmax_max"), _wide(o, "softmax_sum"))


@offers("attention_stats")
def attention_stats(o: Offer) -> None:
    wide = [_wide(o, "softmax_max"), _wide(o, "softmax_sum")]
    _forward(o, *wide)
    for index, view in enumerate(wide, 1):
        batch, heads, queries, copies = view.shape
        every = (heads * queries * copies, queries * copies, copies)
        first = View(view.tensor, "f32", (batch, heads, queries), every)
        o.call("aclnnCast", results=("out",), self=first, dtype=data_type("ACL_FLOAT"), out=o.result(index))


@offers("attention_grad")
def attention_grad(o: Offer) -> None:
    node = o.node
    _extras(node, 7)
    batch, heads, queries = _sizes(node)
    mode = _mode(node)
    floats(node, *(node.operand(i).type.dtype.name for i in (0, 3, 6)))
    stats = []
    for index, name in ((4, "softmax_max"), (5, "softmax_sum")):
        wide = _wide(o, name)
        one = o.operand(index, (batch, heads, queries, 1))
        o.call("aclnnExpand", results=("out",), self=one, size=Integers(wide.shape), out=wide)
        stats.append(wide)
    o.call(
        "aclnnFlashAttentionScoreGrad",
        results=("dqOut", "dkOut", "dvOut"),
        query=o.operand(0),
        keyIn=o.operand(1),
        value=o.operand(2),
        dy=o.operand(6),
        pseShiftOptional=None,
        dropMaskOptional=None,
        paddingMaskOptional=None,
        attenMaskOptional=_mask(o, mode),
        softmaxMaxOptional=stats[0],
        softmaxSumOptional=stats[1],
        softmaxInOptional=None,
        attentionInOptional=o.operand(3),
        prefixOptional=None,
        **_settings(node, heads, mode),
        dqOut=o.result(0),
        dkOut=o.result(1),
        dvOut=o.result(2),
        dpseOut=None,
    )
