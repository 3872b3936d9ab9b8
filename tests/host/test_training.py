"""Host and device of a training graph, before and after: before is the layer as written, differentiated."""

from __future__ import annotations

from moec import driver
from moec.hosttime import time_of
from moec.ir.text import parse_module
from moec.passes.base import Context, train_passes
from tests.support.flat_target import Flat
from tests.support.small_pangu import SIZES, layer


def test_before_is_the_training_graph_of_the_layer_as_written() -> None:
    target = Flat(driver.load_target("ascend910b1").machine)
    forward = time_of(layer(), Context(target, SIZES))
    host = driver.compile(layer(), set=SIZES, target=target, train="").summary["host"]
    assert forward is not None and host is not None
    before, after = host["before"], host["after"]
    assert [r["op"] for r in before["reads"]] == ["to_host"] and before["blocking_reads"] == 1
    assert before["us"] > 2 * forward.us, "backward is in it"
    assert set(before["idle_us"]) == {"sync", "dispatch", "dependency"} and before["idle_us"]["sync"] > 0
    assert all(r["op"] != "to_host" for r in after["reads"]), "sync-removal waits late"
    assert after["us"] < before["us"] and after["gap_us"] < before["gap_us"]
    assert (host["blocking_reads"], host["gap_us"]) == (after["blocking_reads"], after["gap_us"])


def test_a_layer_that_neither_reads_nor_exchanges_is_not_differentiated_for_it() -> None:
    module = parse_module("func main(%x: f32[4]) -> (y: f32[4]) {\n  %1 = exp(%x) : f32[4]\n  return %1\n}\n")
    context = Context(driver.load_target("ascend910b1"))
    assert driver._differentiated(module, train_passes(), context) is None
