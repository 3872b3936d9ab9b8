"""Matrix products of the library. Sums run in f32 on the cube, results are rounded once, as in moec's own."""

from __future__ import annotations

from moec.codegen.operator_call import Number, View, Views
from moec.ir.symbol import Dim
from moec.targets.ascend.aclnn.offer import NotOffered, Offer, boolean, data_type, floats, int64, offers

MOST_INNER = 65535
"""Largest last dimension of a grouped product's operands (aclnnGroupedMatmulV4: below 65536)."""
COUNTS = 1
"""The type of a group list that holds sizes, not ends."""


def turned(view: View) -> View:
    """The last two dimensions swapped; the memory stays as it is."""
    dims = view.shape
    strides: list[Dim] = [1] * len(dims)
    for i in range(len(dims) - 1, 0, -1):
        strides[i - 1] = strides[i] * dims[i]
    swap = (*range(len(dims) - 2), len(dims) - 1, len(dims) - 2)
    return View(view.tensor, view.dtype, tuple(dims[i] for i in swap), tuple(strides[i] for i in swap))


@offers("matmul")
def matmul(o: Offer) -> None:
    node = o.node
    a, b = node.operand(0), node.operand(1)
    floats(node, a.type.dtype.name, b.type.dtype.name, node.result.type.dtype.name)
    dims, other = a.type.dims, b.type.dims
    left, right, out = o.operand(0), o.operand(1), o.result(0)
    if len(other) == 2 and len(dims) > 2 and not node.attrs["transpose_a"]:
        rows: Dim = 1
        for d in dims[:-1]:
            rows = rows * d
        left, out = o.operand(0, (rows, dims[-1])), o.result(0, (rows, node.result.type.dims[-1]))
    elif dims[:-2] != other[:-2]:
        raise NotOffered("a product that repeats one operand in the other's batch")
    if node.attrs["transpose_a"]:
        left = turned(left)
    if node.attrs["transpose_b"]:
        right = turned(right)
    o.call("aclnnMatmul", results=("out",), self=left, mat2=right, out=out, cubeMathType=Number("int8_t", 0))


def _group_list(o: Offer, counts: int) -> View:
    """Operand ``counts`` as the i64 list that the library reads on the device."""
    value = o.node.operand(counts)
    if value.type.dtype.name == "i64":
        return o.operand(counts)
    wide = o.form("group_list", value, "i64")
    o.call("aclnnCast", results=("out",), self=o.operand(counts), dtype=data_type("ACL_INT64"), out=wide)
    return wide


def _inner(*dims: Dim) -> None:
    for d in dims:
        if isinstance(d, int) and d > MOST_INNER:
            raise NotOffered(f"aclnnGroupedMatmulV4 takes last dimensions up to {MOST_INNER}, this has {d}")


def _grouped(o: Offer, x: View, weight: View, bias: View | None, groups: View, out: View, group_type: int) -> None:
    absent = dict.fromkeys(
        (
            "scaleOptional",
            "offsetOptional",
            "antiquantScaleOptional",
            "antiquantOffsetOptional",
            "perTokenScaleOptional",
        )
    )
    activation = dict.fromkeys(
        ("activationInputOptional", "activationQuantScaleOptional", "activationQuantOffsetOptional")
    )
    o.call(
        "aclnnGroupedMatmulV4",
        results=("out",),
        x=Views((x,)),
        weight=Views((weight,)),
        biasOptional=None if bias is None else Views((bias,)),
        **absent,
        groupListOptional=groups,
        **activation,
        splitItem=int64(3),
        groupType=int64(group_type),
        groupListType=int64(COUNTS),
        actType=int64(0),
        out=Views((out,)),
        activationFeatureOutOptional=None,
        dynQuantScaleOutOptional=None,
    )


@offers("grouped_matmul")
def grouped_matmul(o: Offer) -> None:
    node = o.node
    if len(node.operands) > 4 and node.operands[4] is not None:
        raise NotOffered("rows that are picked by indices")
    rows, weight = node.operand(0), node.operand(1)
    dtype = floats(node, rows.type.dtype.name, weight.type.dtype.name, node.result.type.dtype.name)
    _inner(rows.type.dims[-1], weight.type.dims[-1])
    bias = None
    if len(node.operands) > 3 and node.operands[3] is not None:
        wanted = "f16" if dtype == "f16" else "f32"
        given = node.operand(3).type.dtype.name
        bias = o.operand(3)
        if given != wanted:
            bias = o.form("wide_bias", node.operand(3), wanted)
            enumerator = data_type("ACL_FLOAT16" if wanted == "f16" else "ACL_FLOAT")
            o.call("aclnnCast", results=("out",), self=o.operand(3), dtype=enumerator, out=bias)
    groups = _group_list(o, 2)
    stored = o.operand(1)
    _grouped(
        o, o.operand(0), turned(stored) if node.attrs["transpose_weight"] else stored, bias, groups, o.result(0), 0
    )


@offers("grouped_matmul_dw")
def grouped_matmul_dw(o: Offer) -> None:
    node = o.node
    if len(node.operands) > 3 and node.operands[3] is not None:
        raise NotOffered("rows that are picked by indices")
    dy, rows = node.operand(0), node.operand(1)
    dtype = floats(node, dy.type.dtype.name, rows.type.dtype.name)
    if dtype != "f32" and node.result.type.dtype.name == "f32":
        _added(o)
        return
    floats(node, dtype, node.result.type.dtype.name)
    _inner(dy.type.dims[-1], rows.type.dims[-1], dy.type.dims[0])
    groups = _group_list(o, 2)
    _grouped(o, turned(o.operand(0)), o.operand(1), None, groups, o.result(0), 2)


def _added(o: Offer) -> None:
    """The gradient in f32 of 16-bit operands: the library adds it to what is there, here zeros; it takes the ends of
    groups."""
    ends = o.form("group_ends", o.node.operand(2), "i64")
    o.call(
        "aclnnCumsum",
        results=("out",),
        self=o.operand(2),
        dim=int64(0),
        dtype=data_type("ACL_INT64"),
        out=ends,
    )
    total = o.result(0)
    o.zero(total)
    o.call(
        "aclnnGroupedMatmulAdd",
        results=("yRef",),
        x=o.operand(0),
        weight=o.operand(1),
        groupList=ends,
        yRef=total,
        transposeX=boolean(True),
        transposeWeight=boolean(False),
        groupType=int64(2),
    )
