"""The operator model's answer to a target's question: a ``KernelTime`` for one of moec's ops that has no kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moec.diagnostics import Refusal, Where
from moec.ir.group import Group
from moec.ir.symbol import evaluate
from moec.ir.types import TensorType
from moec.ops.registry import opdef
from moec.target import KernelTime, Sizes
from moec.targets.ascend.machine import Machine
from moec.targets.ascend.opmodel.bands import ACROSS_NODES, IN_NODE
from moec.targets.ascend.opmodel.chip import chip_of
from moec.targets.ascend.opmodel.constants import OP_MODEL_VERSION
from moec.targets.ascend.opmodel.estimate import estimate_work
from moec.targets.ascend.opmodel.host import host_calls
from moec.targets.ascend.opmodel.layer import work_of
from moec.targets.ascend.opmodel.links import COLLECTIVES, collective_floor_us, collective_us
from moec.targets.ascend.opmodel.tensor import Tensor

CONTROL = ("if", "loop", "scan", "call", "fused", "host", "moe")
"""Ops that stand for a program: its own ops are to be asked about."""


def known_op(op: str) -> bool:
    """Whether ``op`` is registered."""
    try:
        opdef(op)
    except ValueError:
        return False
    return True


def op_time(
    machine: Machine,
    op: str,
    operands: Sequence[TensorType | None],
    attrs: Mapping[str, Any],
    results: Sequence[TensorType],
    sizes: Sizes,
) -> KernelTime:
    """The time of ``op`` by its class. An op that is not registered has no results known: its largest operand stands
    for them. Refusal for control flow, views and sizes that are not given.
    """
    cost = opdef(op).cost if known_op(op) else ""
    if op in CONTROL:
        raise Refusal(f"op '{op}' stands for other ops", Where(node=op), "expand it and ask for those")
    ins = [None if t is None else _tensor(t, op, sizes) for t in operands]
    given = [t for t in ins if t is not None]
    outs = [_tensor(t, op, sizes) for t in results]
    if not known_op(op):
        outs = [max(given, key=lambda t: t.numel)] if given else []
    if cost == "comm" and op in COLLECTIVES:
        return _exchange(machine, op, attrs, given, outs, sizes)
    if cost == "host":
        call = host_calls()["read" if op in ("to_host", "read_wait") else "launch"]
        return KernelTime(
            op, "host", 0, 0, call.us, call.us, 0.0, "host", 0, 0, model=OP_MODEL_VERSION, low_us=call.low_us,
            high_us=call.high_us, confidence="medium" if call.confidence == "measured" else "low",
        )  # fmt: skip
    work = work_of(op, cost, ins, outs, attrs)
    if work is None or (work.moved == 0 and work.vector == 0):
        raise Refusal(f"op '{op}' moves and computes nothing", Where(node=op), "ask for an op that has a kernel")
    estimate = estimate_work(work, chip_of(machine))
    p = estimate.prediction
    busy = {pipe: min(1.0, us / p.us) for pipe, us in p.busy.items()}
    cycles = max(1, round((p.us - p.launch_us) * machine["clock_mhz"]))
    return KernelTime(
        op, p.core, p.blocks, cycles, p.us, p.launch_us, p.floor_us, p.bound, work.flops, work.moved, busy,
        model=p.model, low_us=estimate.low_us, high_us=estimate.high_us, confidence=estimate.confidence,
    )  # fmt: skip


def _exchange(
    machine: Machine, op: str, attrs: Mapping[str, Any], ins: Sequence[Tensor], outs: Sequence[Tensor], sizes: Sizes
) -> KernelTime:
    """A collective of the op's group; ranks that stand next to each other share a node."""
    group = attrs["group"]
    assert isinstance(group, Group)
    try:
        at = group.at(sizes)
    except KeyError as missing:
        todo = f"write its size as a number, or give {str(missing).strip(chr(39))}"
        raise Refusal(f"group {group.name} is {group}", Where(node=op), todo) from None
    ranks, stride = int(str(at.size)), int(str(at.stride))
    local = max(1, min(ranks, int(machine["links.node.size"]) // max(1, stride)))
    asked = (machine, op, ins[0].bytes, ranks, local)
    us, floor = collective_us(*asked), collective_floor_us(*asked)
    band = IN_NODE if local == ranks else ACROSS_NODES
    moved = ins[0].bytes + sum(t.bytes for t in outs)
    return KernelTime(
        op, "comm", 0, round(us * machine["clock_mhz"]), us, 0.0, floor, "link", 0, moved, model=OP_MODEL_VERSION,
        low_us=max(floor, us * band.low), high_us=us * band.high, confidence=band.confidence,
    )  # fmt: skip


def _tensor(t: TensorType, op: str, sizes: Sizes) -> Tensor:
    if t.shape is None:
        raise Refusal(f"the rank of an operand of '{op}' is not known", Where(node=op), "give its shape")
    try:
        return Tensor(tuple(evaluate(d, sizes) for d in t.shape), t.dtype.name)
    except KeyError as missing:
        raise Refusal(f"no size for {missing} in an operand of '{op}'", Where(node=op), "give it") from None
