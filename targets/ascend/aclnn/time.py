"""How long the vendor's operators take: by the operator model, which was calibrated on measured rows of theirs."""

from __future__ import annotations

from moec.codegen.operator_call import OperatorCall, View
from moec.ir.symbol import evaluate
from moec.target import KernelTime, Sizes
from moec.targets.ascend.machine import Machine
from moec.targets.ascend.opmodel.chip import chip_of
from moec.targets.ascend.opmodel.constants import OP_MODEL_VERSION
from moec.targets.ascend.opmodel.estimate import estimate_work
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.vendor import describe


def call_time(machine: Machine, call: OperatorCall, sizes: Sizes) -> KernelTime:
    """The time of one call at ``sizes``, with the band of its class."""

    def seen(view: View) -> Tensor:
        return Tensor(tuple(evaluate(d, sizes) for d in view.shape), view.dtype)

    ins = [seen(view) for name, view in call.views() if name not in call.results]
    outs = [seen(view) for name, view in call.views() if name in call.results]
    work = describe(call.function, ins, outs)
    estimate = estimate_work(work, chip_of(machine))
    p = estimate.prediction
    busy = {pipe: min(1.0, us / p.us) for pipe, us in p.busy.items()}
    return KernelTime(
        call.function, p.core, p.blocks, max(1, round((p.us - p.launch_us) * machine["clock_mhz"])), p.us, p.launch_us,
        p.floor_us, p.bound, work.flops, work.moved, busy, call.nodes, model=OP_MODEL_VERSION, low_us=estimate.low_us,
        high_us=estimate.high_us, confidence=estimate.confidence,
    )  # fmt: skip
