"""The Ascend target behind the Target protocol: estimates of ops, schedules of programs."""

from __future__ import annotations

import json

import pytest

from moec.diagnostics import Refusal
from moec.ir.graph import Graph, Module
from moec.ir.symbol import sym
from moec.ir.types import BF16, F32, I32, TensorType, dtype
from moec.ops.build import Builder
from moec.target import KernelTime, Target
from moec.targets.ascend import load_target
from moec.targets.ascend.machine import machines
from moec.targets.ascend.model.result import MODEL_VERSION
from moec.targets.ascend.model.scenario import Scenario
from moec.targets.ascend.opmodel.constants import OP_MODEL_VERSION

MATMUL = {"transpose_a": False, "transpose_b": True}


def matmul(target: str, m: int, n: int, k: int) -> KernelTime:
    types = [TensorType(BF16, (m, k)), TensorType(BF16, (n, k))]
    return load_target(target).estimate("matmul", types, MATMUL, {})


@pytest.mark.parametrize("name", machines())
def test_it_is_a_target(name: str) -> None:
    target = load_target(name)
    assert isinstance(target, Target)
    assert target.name == name
    assert target.capacity("L0C") == 128 * 1024
    assert target.computes(dtype("bf16")) and not target.computes(dtype("f64"))


def test_capacity_of_an_unknown_memory() -> None:
    with pytest.raises(KeyError, match="no memory L3; there are L1, L0A"):
        load_target("ascend910b1").capacity("L3")


def test_unknown_target() -> None:
    with pytest.raises(Refusal, match="unknown target"):
        load_target("ascend310")


@pytest.mark.parametrize("name", machines())
def test_a_large_matmul_is_near_its_floor(name: str) -> None:
    time = matmul(name, 4096, 4096, 4096)
    assert time.flops == 2 * 4096**3
    assert time.floor_us <= time.us - time.launch_us <= 2 * time.floor_us
    assert time.bound in ("M", "MTE2", "HBM", "L2")
    assert time.model == MODEL_VERSION


def test_more_cores_and_clock_are_faster() -> None:
    assert matmul("ascend910b1", 4096, 4096, 4096).us < matmul("ascend910b4", 4096, 4096, 4096).us


def test_one_row_is_bound_by_weights() -> None:
    time = matmul("ascend910b1", 1, 7680, 7680)
    assert time.bound in ("HBM", "MTE2")
    assert time.bytes == (7680 * 7680 + 2 * 7680) * 2


def test_an_op_without_kernel_is_answered_by_its_class() -> None:
    time = load_target("ascend910b1").estimate("exp", [TensorType(dtype("f64"), (8, 64))], {}, {})
    assert time.us > 0
    assert time.model == OP_MODEL_VERSION


def test_a_size_that_only_data_tells_is_given() -> None:
    time = load_target("ascend910b1").estimate("nonzero", [TensorType(F32, (8,))], {"count": sym("n")}, {"n": 8})
    assert time.us > time.launch_us > 0
    assert time.model == MODEL_VERSION


def test_a_size_that_is_not_given_is_asked_for() -> None:
    with pytest.raises(Refusal, match="no size for 'n'"):
        load_target("ascend910b1").estimate("nonzero", [TensorType(F32, (8,))], {"count": sym("n")}, {})


def test_operands_that_do_not_fit_are_refused() -> None:
    types = [TensorType(BF16, (8, 16)), TensorType(BF16, (8, 17))]
    with pytest.raises(Refusal, match="matmul"):
        load_target("ascend910b1").estimate("matmul", types, MATMUL, {})


def test_views_alone_are_refused() -> None:
    with pytest.raises(Refusal, match="moves and computes nothing"):
        load_target("ascend910b1").estimate("reshape", [TensorType(F32, (8, 4))], {"shape": (32,)}, {})


def grouped(rows: int) -> tuple[Module, dict[str, int]]:
    module = Module()
    module.symbols["S"] = (0, 65536)
    graph = module.add(Graph("main"))
    x = graph.add_input("x", TensorType(BF16, (sym("S"), 512)))
    w = graph.add_input("w", TensorType(BF16, (16, 256, 512)))
    counts = graph.add_input("counts", TensorType(I32, (16,)))
    graph.set_outputs([Builder(graph).grouped_matmul(x, w, counts)], ["y"])
    return module, {"S": rows}


def test_schedule_of_a_program() -> None:
    target = load_target("ascend910b1")
    module, sizes = grouped(4096)
    program = target.lower(module, sizes)
    schedule = target.schedule(program, sizes)
    assert (schedule.target, schedule.sizes, schedule.model) == ("ascend910b1", sizes, MODEL_VERSION)
    (time,) = schedule.kernels
    assert time.flops == 2 * 4096 * 256 * 512
    assert time.nodes and time.spans
    assert time.us - time.launch_us >= time.floor_us
    json.dumps(time.busy)


def test_one_program_is_timed_at_every_size() -> None:
    target = load_target("ascend910b1")
    module, sizes = grouped(4096)
    program = target.lower(module, sizes)
    times = [target.schedule(program, {"S": rows}).us for rows in (0, 1, 16, 100, 4096, 65536)]
    assert times == sorted(times)


def test_expert_counts_matter() -> None:
    """All rows for one expert: one weight is read, and fewer tiles."""
    target = load_target("ascend910b1")
    module, sizes = grouped(256)
    program = target.lower(module, sizes)
    spread = target.schedule(program, sizes).kernels[0]
    skewed = target.schedule(program, sizes, Scenario({"counts": [256] + [0] * 15})).kernels[0]
    assert skewed.flops == spread.flops
    assert spread.bytes - skewed.bytes == 15 * 256 * 512 * 2


def test_sizes_out_of_bounds_are_refused() -> None:
    target = load_target("ascend910b1")
    module, sizes = grouped(4096)
    program = target.lower(module, sizes)
    with pytest.raises(Refusal, match=r"S = 100000 is outside 0\.\.65536"):
        target.schedule(program, {"S": 100000})
