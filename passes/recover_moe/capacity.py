"""Top-1 routing with a capacity, as Switch Transformers have it (Fedus et al., arXiv 2101.03961): told, not recovered.

Models export it with a running count along each sequence and with tokens above the capacity passed on as they are; the
canonical block counts over all tokens and gives such tokens nothing. So the two differ wherever a capacity binds.
"""

from __future__ import annotations

from moec.ir.graph import Node
from moec.passes.recover_moe.router import producer, uncast

STEPS = 4
"""How far behind the choice the running count stands at most."""


def limited_by_capacity(argmax: Node) -> str | None:
    """Why a top-1 choice of scores is no block that ``moe`` can express; None where it is no such choice."""
    scores = uncast(argmax.operand(0))[0]
    if producer(scores, "softmax", "sigmoid") is None:
        return None
    count = _running_count(argmax)
    if count is None:
        return None
    axis = count.attrs["axis"]
    return (
        f"a top-1 choice with a capacity: tokens are counted along dimension {axis} of {count.result.type} "
        "and those above the capacity keep their input, where the canonical block counts all tokens and drops them"
    )


def _running_count(argmax: Node) -> Node | None:
    """The cumulative sum over one-hot rows of the choice."""
    seen = [argmax]
    for _ in range(STEPS):
        seen = [user for node in seen for user in node.result.uses if len(user.results) == 1]
        for node in seen:
            if node.op == "cumsum":
                return node
    return None
