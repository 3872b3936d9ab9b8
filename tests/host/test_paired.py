"""Forward of one micro-batch beside backward of another: worked by hand, and legal for a dispatcher."""

from __future__ import annotations

from pathlib import Path

import pytest
from timing_double import TimingDouble

from moec.autodiff.differentiate import differentiate
from moec.autodiff.sides import backward_nodes
from moec.diagnostics import Refusal
from moec.frontend.dsl import parse_moe
from moec.ir.graph import Module, Node
from moec.pairedtime import paired_times
from moec.passes.base import Context
from moec.passes.launch_order import must_follow
from moec.passes.paired import BACKWARD, FORWARD, pair, phases
from moec.passes.reorder_launch_list import Cost
from moec.passes.sync_removal import SyncRemoval
from moec.timeline.exposed import exposures

EXAMPLES = Path(__file__).parents[2] / "examples"

LAYER = """
group ep = 2
input x: f32[10, 10]
a = exp(x)
sent = all_to_all(a, group = ep, split_axis = 0, concat_axis = 0)
b = exp(sent)
back = all_to_all(b, group = ep, split_axis = 0, concat_axis = 0)
output y = exp(back)
"""


def test_a_layer_worked_by_hand() -> None:
    """Forward: 100, 100 sent, 100, 100 back, 100. Backward: a product (100) for each exp, and the two exchanges. Apart
    500 each, 200 of them exposed. Paired, 600 of kernels and 400 of exchanges beside them: nothing is exposed once the
    two lanes have taken turns.
    """
    module = differentiate(parse_moe(LAYER))
    found = pair(module, Context(TimingDouble(op=0.0, collective=0.0)))
    assert (found.forward.us, found.backward.us, found.apart_us) == (500, 500, 1000)
    assert found.exposed_apart() == found.exposed_apart("ep") == 400 and found.exposed_apart("tp") == 0
    assert found.paired.us == 600 and found.paired.exposed_us == 0
    assert found.paired.communication_us == 400 and found.paired.gap_us == 0
    assert {side for side, _ in found.order} == {FORWARD, BACKWARD}
    assert found.kernels == {"exp": 300, "mul": 300}


def test_what_is_exposed_is_told_with_what_waits_for_it() -> None:
    found = pair(differentiate(parse_moe(LAYER)), Context(TimingDouble(op=0.0, collective=0.0)))
    assert exposures(found.paired) == exposures(found.forward, "tp") == ()
    for side, alone in ((FORWARD, found.forward), (BACKWARD, found.backward)):
        told = exposures(alone, "ep")
        assert [(e.lane, e.whole_us, e.us) for e in told] == [(side, 100, 100)] * 2
        assert sum(e.us for e in told) == alone.exposed_in("ep")
        assert {kernel for e in told for _, kernel, _ in e.held} <= {"exp", "mul"}
        assert [exchange for e in told for _, _, exchange in e.held] == ["all_to_all"] * 2


def test_what_neither_lane_can_hide_is_exposed() -> None:
    """Two exchanges in a row leave each lane with two kernels: 200 of 400 us have nothing beside them."""
    layer = LAYER.replace("b = exp(sent)", "b = sent")
    found = pair(differentiate(parse_moe(layer)), Context(TimingDouble(op=0.0, collective=0.0)))
    told = exposures(found.paired, "ep")
    assert sum(e.us for e in told) == found.paired.exposed_in("ep") == 200
    assert {lane for e in told for lane, *_ in e.held} == {FORWARD, BACKWARD}
    assert {exchange for e in told for _, _, exchange in e.held} == {"all_to_all"}


def dispatcher() -> Module:
    module = differentiate(parse_moe((EXAMPLES / "megatron_dispatcher.moe").read_text()))
    SyncRemoval().run(module, Context())
    return module


def test_each_side_keeps_its_order_and_no_more() -> None:
    module = dispatcher()
    nodes, before = list(module.main), must_follow(module, module.main)
    backward = backward_nodes(module.main)
    side = {n: BACKWARD if n in backward else FORWARD for n in nodes}
    own = {n: [b for b in before[n] if side[b] == side[n]] for n in nodes}
    costs = {n: Cost(1.0, 50.0 if n.op == "all_to_all_v" else 5.0, n.op) for n in nodes}
    last = [v.producer for v, name in zip(module.main.outputs, module.main.output_names, strict=True) if name == "d_x"]
    order = phases(nodes, own, side, costs, [n for n in last if n is not None])
    assert sorted(map(id, order)) == sorted(map(id, nodes))
    seen: set[Node] = set()
    for n in order:
        assert all(b in seen for b in own[n])
        seen.add(n)
    exchanges = [side[n] for n in order if n.op == "all_to_all_v"]
    assert exchanges == [BACKWARD, FORWARD, BACKWARD, FORWARD]
    second = [n for n in order if n.op == "all_to_all_v"][2]
    weights = [n for n in order if n.op == "grouped_matmul_dw"]
    assert len(weights) == 2 and all(order.index(n) > order.index(second) for n in weights)


def test_pairing_a_dispatcher_hides_exchanges() -> None:
    target = TimingDouble({"all_to_all_v": 8.0, "grouped_matmul": 9.0, "grouped_matmul_dw": 9.0}, collective=2.0)
    found = pair(dispatcher(), Context(target, {"T": 64}))
    assert found.paired.us < found.in_turn.us <= found.apart_us + 1e-6
    assert found.paired.exposed_in("ep") < 0.5 * found.exposed_apart("ep")


def test_what_cannot_be_paired() -> None:
    with pytest.raises(Refusal, match="needs the joint graph of forward and backward"):
        pair(parse_moe(LAYER), Context(TimingDouble()))
    with pytest.raises(Refusal, match="exchanges no rows between any"):
        paired_times(EXAMPLES / "tiny_moe.moe", {}, TimingDouble(), 8)  # type: ignore[arg-type]


def test_each_form_of_exchange_is_paired() -> None:
    forms = paired_times(EXAMPLES / "megatron_dispatcher.moe", {"T": 8}, TimingDouble(), 2)  # type: ignore[arg-type]
    assert [f["form"] for f in forms] == ["flat", "all-gather", "dedup"]
    assert all(f["paired_us"] <= f["apart_us"] and f["exposed_us"] <= f["exposed_apart_us"] for f in forms)
    refused = paired_times(EXAMPLES / "megatron_dispatcher.moe", {"T": 8}, TimingDouble(), 8)  # type: ignore[arg-type]
    assert "does not spread over nodes of 8 ranks" in refused[1]["reason"] and "reason" not in refused[0]
