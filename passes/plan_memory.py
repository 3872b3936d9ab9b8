"""Selective recompute and swap: which activations stay, by a plan of least added time under a memory budget."""

from __future__ import annotations

import math
from dataclasses import replace

from moec.diagnostics import Refusal, Usage
from moec.ir.graph import Module, Node, Value
from moec.memory.build import Built, build
from moec.memory.pipeline import MOST_IN_FLIGHT
from moec.memory.plan import everything_kept, order
from moec.memory.problem import Problem
from moec.memory.replay import replay
from moec.memory.solve import Solved, plan_memory
from moec.ops.registry import opdef
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.node_price import TargetPrices
from moec.passes.plan_memory_entry import entry, sweep
from moec.passes.plan_memory_fixed import fixed_bytes
from moec.passes.plan_memory_refused import refusal
from moec.passes.price import shares
from moec.passes.saved import EXCHANGES, Joint, kind_of
from moec.passes.second_runs import SecondRuns
from moec.passes.swap import park

GIB = 1 << 30
_EXCHANGED = tuple(op for ops in EXCHANGES.values() for op in ops)
"""Collectives that a second run may hold."""


@register_pass
class PlanMemory(Pass):
    """Choose for every activation that backward reads: keep it, compute it again, or park it on the host, so that the
    card's peak stays within ``budget`` GiB at the least added time; then rewrite the graph accordingly.

    The graph is one layer on one card; the card holds ``layers`` such layers, and ``in_flight`` forwards of a layer
    wait for their backward at once (of all micro-batches and layers: in interleaved 1F1B with p stages of v chunks of
    l layers, the first stage has (2(p-1) + (v-1)p + 1) l). ``pcie`` is GB/s between card and host in each direction,
    ``host`` the GiB of host memory for this card, ``shards`` the ranks that share the optimizer state. The budget
    counts weights, gradients (f32), optimizer state (12 bytes a parameter), 400 MiB for each communicator (twice HCCL's
    default buffer), activations, what lives for a moment, and what kernels need besides while they run; with
    ``operators`` also the 16 MiB that operators of CANN's library ask for, whose own workspace counts as the kernels'.
    Choices of experts are kept or parked, never made again. With ``exchanges`` what ranks exchanged or gathered may be
    exchanged again, if that is the cheapest. ``exact`` solves a mixed-integer program, else a greedy
    search. ``sweep``: how many other budgets are tried. Of a training graph; calls are to be inlined; needs a target
    for its prices.
    """

    name = "plan-memory"
    budget: float = 64.0
    pcie: float = 25.0
    host: float = 192.0
    in_flight: int = 1
    layers: int = 1
    shards: int = 1
    exchanges: bool = False
    operators: bool = False
    exact: bool = True
    seconds: float = 60.0
    sweep: int = 10

    def run(self, module: Module, context: Context) -> Result:
        built = self.built(module, context)
        try:
            solved = self.solved(built.problem)
        except Refusal:
            raise self._refusal(built.problem, module, context) from None
        plain = replay(built.problem, order(built.problem, everything_kept(built.problem)))
        result = Result()
        result.memory = entry(built, solved, plain, int(self.budget * GIB)) | {
            "sweep": sweep(built.problem, plain, self.exact, self.sweep)
        }
        apply(built, solved, result)
        return result

    def _refusal(self, problem: Problem, module: Module, context: Context) -> Refusal:
        """Why no plan keeps the budget, and what would."""
        again = None
        if not self.exchanges and any(n.op in _EXCHANGED for n in module.main):
            again = replace(self, exchanges=True).built(module, context).problem
        return refusal(problem, int(self.budget * GIB), again)

    def built(self, module: Module, context: Context) -> Built:
        """The planner's problem of a module. Refusal without a target, or where the graph saves nothing."""
        if context.target is None:
            raise Refusal("plan-memory needs a target that says what recomputation takes", todo="name one")
        above, least = (self.budget, self.in_flight, self.layers, self.shards, self.seconds), (self.pcie, self.host)
        if not all(math.isfinite(n) for n in (*above, *least)) or min(above) <= 0 or min(*least, self.sweep) < 0:
            what = "budget, in_flight, layers, shards and seconds are above 0, pcie, host and sweep not below"
            raise Usage(f"plan-memory: {what}, and none is without end")
        if self.in_flight > MOST_IN_FLIGHT:
            raise Usage(f"plan-memory: in_flight is {MOST_IN_FLIGHT} at most, since a plan may be replayed for each")
        prices = TargetPrices(module, context.target, context.tune, compiled=True)
        fixed = fixed_bytes(module.main, prices.sizes, self.layers, self.shards, self.operators)
        together = shares(list(module.main), prices.context)
        built = build(
            module.main, prices.sizes, lambda n: together.get(n) or prices.device(n), kind_of,
            workspace=prices.workspace, fixed_bytes=fixed,
            in_flight=self.in_flight, pcie=self.pcie * 1e3, host_bytes=int(self.host * GIB),
            exchanges=_EXCHANGED if self.exchanges else (),
        )  # fmt: skip
        if not built.problem.needed:
            todo = "with --train there is nothing to plan: leave out --budget; without it, add --train"
            raise Refusal("plan-memory: the graph saves nothing", todo=todo)
        return built

    def solved(self, problem: Problem) -> Solved:
        """The plan within the budget. Refusal where there is none."""
        return plan_memory(problem, int(self.budget * GIB), self.exact, self.seconds)


def apply(built: Built, solved: Solved, result: Result) -> None:
    """Rewrite the graph as the plan says."""
    choice = solved.choice
    index = {v: i for i, v in enumerate(built.values)}
    runs = SecondRuns(Joint(built.graph), PlanMemory.name, lambda value: True, result)
    stays = {built.values[v] for v in (*choice.kept, *choice.swapped)}
    saves = {_storage(s.operand(0)): s for s in runs.joint.saves}
    for value in sorted(stays - saves.keys(), key=index.__getitem__):
        saves[value] = runs.save(value)
    runs.joint = Joint(built.graph)
    runs.replace([s for v, s in saves.items() if v not in stays])
    points, joint = _points(built, solved), Joint(built.graph)
    parked = [(saves[built.values[v]], points[v]) for v in sorted(choice.swapped)]
    for save, point, first in [(s, p, joint.first_reader(s.result)) for s, p in parked]:
        if first is not None:
            park(save, min(point, first, key=joint.position.__getitem__), joint, PlanMemory.name, result)


def _points(built: Built, solved: Solved) -> dict[int, Node]:
    """The backward node before which each copy back is issued; the first one for those issued earlier still."""
    points = {v: built.backward[0] for _, v in solved.plan.ahead}
    waiting: list[int] = []
    for event in solved.plan.backward:
        if event.what == "in":
            waiting.append(event.index)
        elif event.what == "run":
            points |= dict.fromkeys(waiting, built.backward[event.index])
            waiting = []
    return points


def _storage(value: Value) -> Value:
    while value.producer is not None and value.producer.operands and opdef(value.producer.op).cost == "view":
        value = value.producer.operand(0)
    return value
