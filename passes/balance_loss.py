"""Auxiliary losses that keep the experts of every router evenly loaded, as one more output of the layer."""

from __future__ import annotations

from moec.diagnostics import Problem, Refusal, Where
from moec.eval.ranks import groups
from moec.ir.graph import Graph, Module, Node, Value, merged_origin
from moec.ir.group import Group
from moec.ops.build import Builder
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.effects import called
from moec.passes.expand_moe import ExpandMoE

KINDS = ("micro_batch", "ep_group", "dp_group", "cv_squared")
OUTPUT = "balance_loss"
"""What the output of ``main`` is called."""


@register_pass
class BalanceLosses(Pass):
    """Add a balance loss of each router; their sum becomes the output ``balance_loss``. For training: name it as a
    loss beside the layer's own.

    ``kind`` says over which tokens the share f of each expert is counted, in E * sum of f P times ``coefficient``:
    ``micro_batch`` those at hand (arXiv 2101.03961, eq. 4; 2412.19437, eq. 17), ``ep_group`` those of the
    expert-parallel group (the EP group loss of Pangu Ultra MoE, arXiv 2505.04519), ``dp_group`` those of the
    data-parallel group (the global batch of arXiv 2501.11873); the counts are summed over the group, P stays the rank's
    own. ``cv_squared`` is the squared coefficient of variation of P instead (arXiv 1701.06538, eq. 7). P is the mean
    score over all experts, whatever is chosen; the gradient goes through P alone. ``balance_loss`` (`moec ops`) says
    where these differ from the papers. A group is
    the module's own of the name ``group`` (ep, dp), or ``size`` ranks that stand ``stride`` apart. Blocks are expanded
    first.
    """

    name = "balance-loss"
    kind: str = "micro_batch"
    coefficient: float = 0.001
    group: str = ""
    size: int = 0
    stride: int = 1

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        group = self._group(module)
        if any(n.op == "moe" for n in module.nodes()):
            result = ExpandMoE().run(module, context)
        added = _Adder(self, module, group, result)
        total = added.function(module.main)
        if added.problems:
            raise Refusal(added.problems)
        if total is None:
            raise Refusal("no router is found to balance", todo="recover-moe finds the blocks of an import")
        main = module.main
        main.set_outputs([*main.outputs, total], [*main.output_names, OUTPUT])
        return result

    def _group(self, module: Module) -> Group | None:
        """The group that counts are summed over; Refusal lists what is wrong with the options."""
        problems = []
        if self.kind not in KINDS:
            problems.append(Problem(f"kind '{self.kind}' of a balance loss is none of {', '.join(KINDS)}"))
        if not self.coefficient > 0:
            problems.append(Problem(f"the coefficient of a balance loss is above 0, not {self.coefficient}"))
        if OUTPUT in module.main.output_names:
            problems.append(Problem(f"there is an output '{OUTPUT}' already", todo="rename it, or leave this pass out"))
        found = None
        if self.kind.endswith("_group"):
            name = self.group or self.kind.removesuffix("_group")
            found = next((g for g in groups(module) if g.name == name), None)
            if self.size:
                found = Group(name, self.size, self.stride)
            if found is None:
                listed = ", ".join(g.name for g in groups(module)) or "none"
                todo = f"its groups are: {listed}; give size and stride for another"
                problems.append(Problem(f"the module has no group '{name}'", todo=todo))
        if problems:
            raise Refusal(problems)
        return found


class _Adder:
    """Adds the losses of one module function by function; each function gives the sum of its own as a last result."""

    def __init__(self, options: BalanceLosses, module: Module, group: Group | None, result: Result):
        self.options, self.module, self.group, self.result = options, module, group, result
        self.totals: dict[str, bool] = {}
        """Whether a function that has been seen has a loss to give."""
        self.problems: list[Problem] = []

    def function(self, graph: Graph) -> Value | None:
        """The sum of the losses in the function and those that it calls; None where there is no router."""
        total: Value | None = None
        for node in graph:
            found = self.loss(node, graph) if node.op == "gating" else self.call(node, graph)
            if found is not None:
                b = Builder(graph, None, merged_origin([node], self.options.name))
                total = found if total is None else b.add(total, found)
        return total

    def loss(self, node: Node, graph: Graph) -> Value:
        """The loss of one router."""
        origin = merged_origin([node], self.options.name)
        b = Builder(graph, node.next, origin)
        form, counts = "cv_squared", None
        if self.options.kind != "cv_squared":
            form, counts = "load", node.results[2]
        if self.group is not None:
            counts = b.all_reduce(counts, group=self.group, reduction="sum")
        self.result.apply(self.options.name, origin, graph)
        made: Value = b.balance_loss(
            node.operand(0), counts, form=form, score=node.attrs["score"], coefficient=self.options.coefficient
        )
        return made

    def call(self, node: Node, graph: Graph) -> Value | None:
        """The loss of the function that a node calls, as one more result of it; None where there is none."""
        found = [name for name in called(node) if self.gives(name)]
        if not found:
            return None
        if node.op != "call":
            what = f"a router stands inside a {node.op}, from which its balance loss has no way out"
            self.problems.append(Problem(what, Where(node=str(node.origin)), "balance the layers outside of it"))
            return None
        made = Builder(graph, node, node.origin).call(self.module, found[0], *node.operands)
        for old, new in zip(node.results, made, strict=False):
            new.name = old.name
            old.replace_with(new)
        graph.erase(node)
        return made[-1]

    def gives(self, name: str) -> bool:
        """Whether the function has a loss; the first time, it is made its last result."""
        if name not in self.totals:
            graph = self.module.functions[name]
            total = self.function(graph)
            self.totals[name] = total is not None
            if total is not None:
                names = [*graph.output_names, _unique(OUTPUT, graph.output_names)]
                graph.set_outputs([*graph.outputs, total], names)
        return self.totals[name]


def _unique(name: str, taken: list[str]) -> str:
    number, made = 1, name
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    return made
