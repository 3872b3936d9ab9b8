"""What kernels need beside their operands counts against the budget: told by the target, seen by replay, planned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moec.driver import load_target
from moec.ir.types import DTYPES, TensorType
from moec.memory.plan import everything_kept, order
from moec.memory.problem import Problem, Step, Tensor
from moec.memory.replay import replay
from moec.memory.solve import plan_memory

MIB = 1 << 20


def typed(dtype: str, *dims: int) -> TensorType:
    return TensorType(DTYPES[dtype], dims)


def test_a_grouped_product_with_a_bias_needs_room_for_the_product_without() -> None:
    target = load_target("ascend910b1")
    operands = [typed("bf16", 96, 64), typed("bf16", 4, 32, 64), typed("i32", 4)]
    assert target.workspace("grouped_matmul", operands, {}, {}) == 0
    bias = typed("bf16", 4, 32)
    assert target.workspace("grouped_matmul", [*operands, bias], {}, {}) == 96 * 32 * 4, "f32, before the bias"


def test_running_sums_along_rows_need_the_turned_and_the_summed_matrix_at_once() -> None:
    target = load_target("ascend910b1")
    attrs = {"axis": 1, "exclusive": False, "reverse": False}
    assert target.workspace("cumsum", [typed("f32", 8, 40)], attrs, {}) == 2 * 8 * 40 * 4


def test_an_op_without_a_kernel_needs_none() -> None:
    assert load_target("ascend910b1").workspace("no_such_op", [typed("f32", 8)], {}, {}) == 0


def chain(workspace: int) -> Problem:
    """x -> a -> b; backward reads both. The first backward step needs ``workspace`` besides."""
    tensors = tuple(Tensor(n, s * MIB) for n, s in (("x", 0), ("a", 8), ("b", 4), ("db", 2), ("da", 2)))
    forward = Step("fa", 100.0, (0,), (1,)), Step("fb", 100.0, (1,), (2,))
    backward = Step("bb", 200.0, (2,), (3,), "", workspace), Step("ba", 200.0, (3, 1), (4,))
    return Problem(tensors, forward, backward, {"weights": MIB}, 2, 0.0, 0)


def test_workspace_is_there_while_its_step_runs() -> None:
    problem = chain(16 * MIB)
    seen = replay(problem, order(problem, everything_kept(problem)))
    # two chunks keep a and b (24), beside the weights (1); bb makes db (2) and needs 16
    assert seen.peak_bytes == 43 * MIB and seen.peak_at.endswith("backward, bb")
    assert seen.parts == {"activations": 24 * MIB, "passing": 2 * MIB, "workspace": 16 * MIB}
    # with less of it, ba is the fullest: b of one chunk is gone (20), db and da are there (4)
    small = replay(chain(0), order(chain(0), everything_kept(chain(0))))
    assert small.peak_bytes == 27 * MIB and small.parts["workspace"] == 0


@pytest.mark.parametrize("exact", [True, False])
def test_a_plan_makes_room_for_workspace(exact: bool) -> None:
    """35 MiB hold everything where bb needs 8 MiB; where it needs 16, a of both chunks or b has to go."""
    assert plan_memory(chain(8 * MIB), 35 * MIB, exact).added_us == 0.0
    with_more = plan_memory(chain(16 * MIB), 35 * MIB, exact)
    assert with_more.outcome.peak_bytes <= 35 * MIB and with_more.added_us == 100.0
    assert with_more.bound_us == pytest.approx(100.0 if exact else 0.0, abs=0.5)


def test_a_forward_step_counts_too() -> None:
    problem = chain(0)
    first = replace(problem.forward[1], workspace=32 * MIB)
    full = replace(problem, forward=(problem.forward[0], first))
    seen = replay(full, order(full, everything_kept(full)))
    # the other chunk keeps a and b (12), this one has a and b (12), beside 1 and 32
    assert seen.peak_bytes == 57 * MIB and seen.parts["workspace"] == 32 * MIB
