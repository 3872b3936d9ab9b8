"""Parking chosen activations on the host between forward and backward."""

from __future__ import annotations

from moec.ir.graph import Module, Node, merged_origin
from moec.ops.build import Builder
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.saved import Joint, select


@register_pass
class Swap(Pass):
    """Copy saved values to the host behind forward, and back before backward reads them, on the copy stream.

    ``what`` joins with "+" kinds of saves (act, norm, mla_up, permute), names of saves, or all. ``ahead`` is how many
    backward nodes before the first reader the copy back is issued. Of a training graph; calls are to be inlined.
    """

    name = "swap"
    what: str = ""
    ahead: int = 4

    def run(self, module: Module, context: Context) -> Result:
        result = Result()
        joint = Joint(module.main)
        backward = [n for n in module.main if n in joint.backward]
        place = {n: i for i, n in enumerate(backward)}
        chosen = select(joint, [w.strip() for w in self.what.split("+") if w.strip()])
        for save, reader in [(s, joint.first_reader(s.result)) for s in chosen]:
            if reader is None:
                result.miss("swap", f"{save.attrs['name']}: backward does not read it", [save], module.main)
                continue
            park(save, backward[max(0, place[reader] - max(0, self.ahead))], joint, self.name, result)
        return result


def park(save: Node, point: Node, joint: Joint, name: str, result: Result) -> None:
    """Copy what ``save`` keeps to the host instead, and back from the backward node ``point`` on."""
    origin = merged_origin([save], name)
    parked = Builder(joint.graph, save, origin).swap_out(save.operand(0), name=save.attrs["name"])
    back = Builder(joint.graph, point, origin).swap_in(parked, joint.trigger(point))
    save.result.replace_with(back)
    joint.graph.erase(save)
    result.apply("swap", origin, joint.graph)
