"""The list of nodes that were kept as they came, for the warnings of an import."""

from __future__ import annotations

from moec.diagnostics import Problem
from moec.frontend.onnx.order import NodeView, place


class Kept:
    """The operators that were kept, by name and reason."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], list[NodeView]] = {}

    def add(self, view: NodeView, reason: str) -> None:
        """Note one more node."""
        name = f"{view.domain}.{view.op_type}" if view.domain else view.op_type
        self.seen.setdefault((name, reason), []).append(view)

    def warnings(self, file: str) -> list[Problem]:
        """One a kind: how many nodes, the first, and why."""
        return [
            Problem(
                f"operator {name} ({len(found)} nodes, the first is node {found[0].index}) is kept as it is: {reason}",
                place(file, found[0]),
                "it is evaluated by the onnx reference evaluator where that knows it, and has no kernel",
            )
            for (name, reason), found in self.seen.items()
        ]
