"""The ops of the layer IR. Importing this package declares all of them in ``moec.ops.registry.OPS``."""

from moec.ops import (
    attention,
    attention_grad,
    balance,
    comm,
    control,
    elementwise,
    experts,
    experts_grad,
    host,
    index,
    loss,
    matmul,
    moe,
    norm,
    opaque,
    reduce,
    rope,
    routing,
    routing_grad,
    save,
    shape,
    source,
)
from moec.ops.build import Builder, make_node
from moec.ops.registry import OPS, OpDef, op, opdef

__all__ = ["OPS", "Builder", "OpDef", "make_node", "op", "opdef"]
_DECLARING = (
    attention,
    attention_grad,
    balance,
    comm,
    control,
    elementwise,
    experts,
    experts_grad,
    host,
    index,
    loss,
    matmul,
    moe,
    norm,
    opaque,
    reduce,
    rope,
    routing,
    routing_grad,
    save,
    shape,
    source,
)
