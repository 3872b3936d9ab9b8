"""What of a block would stay beside the canonical node because something else reads it, as a backward pass does."""

from __future__ import annotations

from collections.abc import Sequence

from moec.ir.graph import Node, Value
from moec.passes.region import standing

PRODUCTS = frozenset(("matmul", "grouped_matmul"))


def computed_twice(nodes: Sequence[Node], replaced: Value, router: Node | None) -> str | None:
    """Why the canonical node in the place of ``nodes`` would repeat products with the experts' weights; None where it
    repeats none.

    The router's own product is small and not counted.
    """
    kept = standing(nodes, replaced)
    inside = set(nodes)
    repeated = [n for n in kept if n.op in PRODUCTS and n is not router]
    if not repeated:
        return None
    read = [n for n in kept if any(u not in inside for v in n.results if v is not replaced for u in v.uses)]
    said = ", ".join(f"{n.op} ({n.origin})" for n in repeated[:2])
    return (
        f"{len(read)} values that it computes on the way are read elsewhere, as by the backward pass of a training "
        f"step, so that beside a canonical node {len(repeated)} products would be computed a second time: {said}"
    )
