"""Removal of what nobody reads."""

from __future__ import annotations

from moec.ir.graph import Module
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.effects import callees, effectful_functions, has_effect


@register_pass
class DeadCode(Pass):
    """Erase nodes that nobody reads and that have no effect, and functions that nobody calls; one walk from the end."""

    name = "dce"

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        effects = effectful_functions(module)
        for graph in module.functions.values():
            for node in reversed(graph):
                if not any(v.uses for v in node.results) and not has_effect(node, effects):
                    graph.erase(node)
                    result.apply(f"unread {node.op}", node.origin, graph)
        drop_unused_functions(module, result)
        return result


def drop_unused_functions(module: Module, result: Result) -> None:
    """Take out the functions that ``main`` does not reach."""
    reached: dict[str, None] = {}
    stack = ["main"] if "main" in module.functions else list(module.functions)
    while stack:
        name = stack.pop()
        if name not in reached:
            reached[name] = None
            stack += callees(module.functions[name])
    for name in [n for n in module.functions if n not in reached]:
        del module.functions[name]
        result.changed = True
