"""Operators over rows: gated activations, RMS norm, softmax."""

from __future__ import annotations

from moec.targets.ascend.aclnn.offer import NotOffered, Offer, double, floats, int64, offers


def _silu_of_first_half(o: Offer) -> None:
    a = o.node.attrs
    if (a["activation"], a["glu"], a["limit"], a["up_offset"]) != ("silu", "chunked", None, 0.0):
        raise NotOffered("aclnnSwiGlu is silu(first half) * second half")


@offers("swiglu")
def swiglu(o: Offer) -> None:
    _silu_of_first_half(o)
    floats(o.node, o.node.operand(0).type.dtype.name)
    o.call("aclnnSwiGlu", results=("out",), x=o.operand(0), dim=int64(-1), out=o.result(0))


@offers("swiglu_grad")
def swiglu_grad(o: Offer) -> None:
    _silu_of_first_half(o)
    floats(o.node, o.node.operand(0).type.dtype.name, o.node.operand(1).type.dtype.name)
    o.call("aclnnSwiGluGrad", results=("out",), yGrad=o.operand(1), x=o.operand(0), dim=int64(-1), out=o.result(0))


@offers("rms_norm")
def rms_norm(o: Offer) -> None:
    node = o.node
    x = node.operand(0)
    if len(node.operands) < 2 or node.operands[1] is None:
        raise NotOffered("aclnnRmsNorm needs a weight")
    floats(node, x.type.dtype.name, node.operand(1).type.dtype.name, node.result.type.dtype.name)
    rstd = o.scratch("rstd", "f32", (*x.type.dims[:-1], 1))
    o.call(
        "aclnnRmsNorm",
        results=("yOut", "rstdOut"),
        x=o.operand(0),
        gamma=o.operand(1),
        epsilon=double(node.attrs["eps"]),
        yOut=o.result(0),
        rstdOut=rstd,
    )


@offers("softmax")
def softmax(o: Offer) -> None:
    floats(o.node, o.node.operand(0).type.dtype.name)
    o.call("aclnnSoftmax", results=("out",), self=o.operand(0), dim=int64(o.node.attrs["axis"]), out=o.result(0))
