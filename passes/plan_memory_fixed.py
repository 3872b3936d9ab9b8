"""What lies on the card whatever is planned: the model's own, and what libraries take for themselves."""

from __future__ import annotations

from collections.abc import Mapping

from moec.ir.graph import Graph
from moec.ir.symbol import evaluate
from moec.ops.registry import opdef

MIB = 1 << 20

GRADIENT_BYTES = 4
"""Bytes of a parameter's main gradient: f32."""

OPTIMIZER_BYTES = 12
"""Bytes of a parameter's optimizer state: f32 master copy and AdamW's two moments."""

COMMUNICATOR = 2 * 200 * MIB
"""Bytes that each communicator keeps to itself for sending and receiving, whatever it sends: twice HCCL_BUFFSIZE, whose
default is 200 MB (CANN, environment variables); taken as MiB.
"""

SYSTEM_WORKSPACE = 16 * MIB
"""Bytes of workspace that an operator of CANN's library asks for besides its own (ops-transformer, tilings of
operators). Assumed: operators run one after the other and share it, and their own workspace is what the kernel of moec
for the same op needs, since their libraries tell theirs only when they run.
"""


def fixed_bytes(
    graph: Graph, sizes: Mapping[str, int], layers: int, shards: int, operators: bool = False
) -> dict[str, int]:
    """Bytes by use: of ``layers`` copies of the graph's weights, whose optimizer state ``shards`` ranks share; of a
    communicator for each group that collectives run over; with ``operators`` of operators of CANN's library.
    """
    weights = [n.result.type for n in graph if n.op == "weight"]
    count = layers * sum(int(evaluate(t.numel(), sizes)) for t in weights)
    stored = layers * sum(int(evaluate(t.numel() * t.dtype.bits, sizes)) // 8 for t in weights)
    found = {
        "weights": stored,
        "gradients": count * GRADIENT_BYTES,
        "optimizer": -(-count * OPTIMIZER_BYTES // shards),
    }
    groups = {n.attrs["group"] for n in graph if "collective" in opdef(n.op).traits}
    if groups:
        found["communicators"] = len(groups) * COMMUNICATOR
    if operators:
        found["operators"] = SYSTEM_WORKSPACE
    return found
