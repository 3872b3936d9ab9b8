"""Forward of one micro-batch and backward of another, layer by layer, in one order of launches.

In a pipeline of several micro-batches a stage has, most of the time, a layer to run forward for one micro-batch and one
to run backward for another. The two share weights and nothing else, so that either's computation can cover the other's
exchanges: attention forward beside the way back of the rows' gradients, the experts' backward beside dispatch forward,
the experts' forward beside dispatch backward, attention backward beside combine forward; weight gradients, which nobody
waits for, where there is room.

The order is found by list scheduling on the joint graph of forward and backward, each side of which is taken as a
program of its own (what forward saved for this backward lies there since it ran).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from moec.autodiff.loss import PREFIX
from moec.autodiff.sides import backward_nodes
from moec.diagnostics import Refusal
from moec.ir.graph import Module, Node
from moec.ops.registry import OPS
from moec.passes.base import Context
from moec.passes.launch_order import held_by, must_follow
from moec.passes.node_price import TargetPrices
from moec.passes.reorder_launch import cost_of
from moec.passes.reorder_launch_list import Cost, list_schedule
from moec.timeline.build import Program, is_free, tasks_of
from moec.timeline.idle import HostTime, steady
from moec.timeline.model import Machine, Outputs, Task

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Paired:
    """One layer forward and one backward: each alone in a row of its like, both in the order as written, and both in
    the paired order, whose ops are ``order`` (side and op). ``kernels``: microseconds that both sides compute, by op.
    """

    forward: HostTime
    backward: HostTime
    in_turn: HostTime
    paired: HostTime
    order: tuple[tuple[str, str], ...]
    kernels: Mapping[str, float]

    @property
    def apart_us(self) -> float:
        """Microseconds of both where a layer's forward and another's backward never overlap."""
        return self.forward.us + self.backward.us

    def exposed_apart(self, groups: str = "") -> float:
        """Exposed communication over the groups so named where the two never overlap."""
        return self.forward.exposed_in(groups) + self.backward.exposed_in(groups)


def pair(module: Module, context: Context) -> Paired:
    """The paired schedule of a joint graph (``--train``), the better of list scheduling and of ``phases``. Refusal
    where the module is none.
    """
    graph = module.main
    backward = backward_nodes(graph)
    if context.target is None or not backward:
        raise Refusal("a paired schedule needs the joint graph of forward and backward, and a target")
    nodes = list(graph)
    side = {n: BACKWARD if n in backward else FORWARD for n in nodes}
    prices = TargetPrices(module, context.target, context.tune)
    program = tasks_of(module, prices)
    before = must_follow(module, graph)
    own = {n: [b for b in before[n] if side[b] == side[n]] for n in nodes}
    costs = {n: cost_of(n, prices) for n in nodes}
    machine = prices.machine()
    given = [v.name for v in graph.inputs]
    ends = {FORWARD: program.ends[0], BACKWARD: _gradients(program, graph.output_names, given)}
    both = _Arranged(program, side, ends)
    alone = [_Arranged(program, side, ends, only) for only in (FORWARD, BACKWARD)]
    last = [program.nodes[t] for t in ends[BACKWARD]]
    lanes = (BACKWARD, FORWARD)
    orders = [phases(nodes, own, side, costs, last, turns) for turns in (lanes, lanes[::-1])]
    orders.append(list_schedule(nodes, own, costs))
    order = min(orders, key=lambda o: both.time(machine, o).us)
    kernels: dict[str, float] = {}
    for node, task in zip(program.nodes, program.tasks, strict=True):
        if task.kind == "kernel":
            kernels[node.op] = kernels.get(node.op, 0.0) + task.device_us
    return Paired(
        alone[0].time(machine, nodes),
        alone[1].time(machine, nodes),
        both.time(machine, nodes),
        both.time(machine, order),
        tuple((side[n], n.op) for n in order if not is_free(n)),
        kernels,
    )


def phases(
    nodes: Sequence[Node],
    own: dict[Node, list[Node]],
    side: dict[Node, str],
    costs: dict[Node, Cost],
    gradients: Sequence[Node],
    lanes: Sequence[str] = (BACKWARD, FORWARD),
) -> list[Node]:
    """The two sides cut at their long exchanges (at least a quarter of the longest), which take turns in the order of
    ``lanes``: what an exchange needs, the exchange, and what needs neither it nor a later one (weight gradients, a
    shared expert). At the end what ``gradients`` need, the rest of backward, the rest of forward.
    """
    lengths = {n: costs[n].device_us for n in nodes if "collective" in OPS[n.op].traits}
    least = max(lengths.values(), default=0.0) / 4
    cuts = {lane: [n for n in lengths if side[n] == lane and lengths[n] >= least] for lane in (BACKWARD, FORWARD)}
    order: dict[Node, None] = {}
    for turn in range(max(map(len, cuts.values()))):
        for lane in lanes:
            if turn < len(cuts[lane]):
                exchange = cuts[lane][turn]
                _emit([exchange], own, order)
                held = held_by(exchange, own)
                _emit([n for n in nodes if side[n] == lane and n not in held], own, order)
    _emit(gradients, own, order)
    for lane in (BACKWARD, FORWARD):
        _emit([n for n in nodes if side[n] == lane], own, order)
    return list(order)


def _emit(chosen: Sequence[Node], own: dict[Node, list[Node]], order: dict[Node, None]) -> None:
    """Put nodes and all that they need, in the order as written, behind ``order``."""
    stack = [n for n in chosen if n not in order]
    wanted = set(stack)
    while stack:
        for b in own[stack.pop()]:
            if b not in order and b not in wanted:
                wanted.add(b)
                stack.append(b)
    order.update((n, None) for n in own if n in wanted)


def _gradients(program: Program, outputs: Sequence[str], inputs: Sequence[str]) -> tuple[int, ...]:
    """The tasks behind the gradients of the inputs, which the layer before waits for."""
    wanted = [i for i, name in enumerate(outputs) if name.removeprefix(PREFIX) in inputs and name.startswith(PREFIX)]
    return tuple(sorted({t for i in wanted for t in program.ends[i]}))


class _Arranged:
    """A program's tasks as two lanes that know nothing of one another; with ``only``, one of them."""

    def __init__(self, program: Program, side: dict[Node, str], ends: dict[str, tuple[int, ...]], only: str = ""):
        self.program, self.side, self.ends, self.only = program, side, ends, only

    def time(self, machine: Machine, order: Sequence[Node]) -> HostTime:
        """In a row of its like, with the nodes in ``order``."""
        place = {n: i for i, n in enumerate(order)}
        nodes = self.program.nodes
        kept = [i for i in range(len(nodes)) if not self.only or self.side[nodes[i]] == self.only]
        kept.sort(key=lambda i: (place[nodes[i]], i))
        number = {old: new for new, old in enumerate(kept)}
        tasks = [self._task(i, number) for i in kept]
        outputs: Outputs = {lane: [number[i] for i in ends if i in number] for lane, ends in self.ends.items()}
        return steady(tasks, machine, outputs)

    def _task(self, old: int, number: dict[int, int]) -> Task:
        nodes, task = self.program.nodes, self.program.tasks[old]
        lane = self.side[nodes[old]]
        after = tuple(number[i] for i in task.after if self.side[nodes[i]] == lane)
        awaits = number[task.awaits] if task.awaits is not None else None
        return replace(task, after=after, awaits=awaits, lane=lane)
