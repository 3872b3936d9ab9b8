"""Backward over groups of ranks: adjoint collectives and copies between host and device, and whole dispatchers.

The loss is the sum over the ranks of what each rank's output is worth to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from moec.autodiff import saved_values
from moec.diagnostics import Refusal
from moec.eval import run
from moec.eval.ranks import part_of
from moec.frontend.dsl import parse_moe, read_moe
from moec.ir.graph import Module
from moec.passes.base import Context, PassManager, train_passes
from tests.support.train import copy, joint

Array = np.ndarray
EXAMPLES = Path(__file__).parents[2] / "examples"
RANKS = 4
TOTAL = 'all_reduce(x, group = g, reduction = "sum")'
PAIRED = {
    "all_gather": ["all_gather(x, group = g, axis = 0)", "all_gather(x, group = g, axis = 1)"],
    "all_reduce": [TOTAL],
    "reduce_scatter": ['reduce_scatter(x, group = g, axis = 0, reduction = "sum")'],
    "all_to_all": [
        "all_to_all(x, group = g, split_axis = 0, concat_axis = 0)",
        "all_to_all(x, group = g, split_axis = 0, concat_axis = 1)",
    ],
    "to_device": [f"to_device(to_host(x)) * {TOTAL}"],
    "to_host": [f"to_device(to_host(x * 2.0)) * {TOTAL}"],
    "read_start": [f"to_device(read_wait(read_start(x))) * {TOTAL}"],
    "read_wait": [f"to_device(read_wait(read_start(x * x))) + {TOTAL}"],
}
"""Ways to use each op of a [4, 3] tensor."""


def by_rank(arrays: Mapping[str, Array], name: str) -> list[Array]:
    """What each rank has of that name, in order."""
    found = [a for i in range(len(arrays)) if (a := arrays.get(f"rank{i}.{name}")) is not None]
    assert found
    return found


def given(**arrays: list[Array]) -> dict[str, Array]:
    """Arrays of each rank under the names that a run wants."""
    return {f"rank{i}.{name}": a for name, each in arrays.items() for i, a in enumerate(each)}


def check(module: Module, xs: list[Array], weights: Mapping[str, Array], directions: int) -> dict[str, Array]:
    """Assert that gradients agree with differences along directions of every rank's x and of every weight."""
    made = joint(module)
    rng = np.random.default_rng(3)
    ys = by_rank(run(module, given(x=xs), weights, fp64=True), "y")
    dys = [rng.standard_normal(y.shape) for y in ys]
    got = run(made, given(x=xs, d_y=dys), weights, fp64=True)

    def loss(moved: list[Array], numbers: Mapping[str, Array]) -> float:
        out = by_rank(run(module, given(x=moved), numbers, fp64=True), "y")
        return sum(float(np.sum(dy * y)) for dy, y in zip(dys, out, strict=True))

    for _ in range(directions):
        steps = [rng.standard_normal(x.shape) for x in xs]
        up, down = ([x + s * 1e-6 * d for x, d in zip(xs, steps, strict=True)] for s in (1, -1))
        expected = (loss(up, weights) - loss(down, weights)) / 2e-6
        actual = sum(float(np.sum(g * d)) for g, d in zip(by_rank(got, "d_x"), steps, strict=True))
        assert abs(actual - expected) < 1e-6 * max(1.0, abs(expected)), "x"
        for name, w in weights.items():
            step = rng.standard_normal(w.shape) / 10
            up_w, down_w = ({**weights, name: w + s * 1e-6 * step} for s in (1, -1))
            expected = (loss(xs, up_w) - loss(xs, down_w)) / 2e-6
            shards = module.shards.get(name, ())
            actual = sum(
                float(np.sum(part * part_of(name, {name: step}, rank, shards)))
                for rank, part in enumerate(by_rank(got, f"d_{name}"))
            )
            assert abs(actual - expected) < 1e-6 * max(1.0, abs(expected)), name
    return got


@pytest.mark.parametrize(("name", "body"), [(n, b) for n, bodies in PAIRED.items() for b in bodies])
def test_adjoints(name: str, body: str) -> None:
    module = parse_moe(f"group g = 4\ninput x: f32[4, 3]\noutput y = {body}\n")
    assert any(n.op == name for n in module.nodes())
    rng = np.random.default_rng(len(body))
    check(module, [rng.standard_normal((4, 3)) for _ in range(RANKS)], {}, 8)


def test_rows_go_back_where_they_came_from() -> None:
    """ "all_to_all_v" of ranks that send different numbers of rows, none to some."""
    text = """
dim T in [1, 64]
group g = 4
input x: f32[T, 2], send: i64[4], receive: i64[4]
host_send = to_host(send)
host_receive = to_host(receive)
host { count = reduce_sum(host_receive, axes = [0], keepdims = false) }
R = size(count, at_most = 64)
output y = all_to_all_v(x * x, host_send, host_receive, group = g, rows = R)
"""
    module = parse_moe(text)
    table = np.array([[1, 0, 2, 1], [0, 0, 3, 0], [2, 1, 0, 1], [1, 1, 1, 1]])
    made = joint(module)
    assert sum(n.op == "all_to_all_v" for n in made.nodes()) == 2
    rng = np.random.default_rng(1)
    xs = [rng.standard_normal((int(row.sum()), 2)) for row in table]
    lists = given(send=list(table), receive=list(table.T))
    ys = by_rank(run(module, {**given(x=xs), **lists}, fp64=True), "y")
    dys = [rng.standard_normal(y.shape) for y in ys]
    got = by_rank(run(made, {**given(x=xs, d_y=dys), **lists}, fp64=True), "d_x")
    ends = np.cumsum(table, axis=0)
    for i, x in enumerate(xs):
        parts = [dys[j][ends[i, j] - table[i, j] : ends[i, j]] for j in range(RANKS)]
        np.testing.assert_allclose(got[i], 2 * x * np.concatenate(parts))


def test_a_maximum_over_ranks_is_refused() -> None:
    module = parse_moe('group g = 4\ninput x: f32[4, 3]\noutput y = all_reduce(x, group = g, reduction = "max")\n')
    with pytest.raises(Refusal, match="all_reduce: of a max over ranks"):
        joint(module)


def numbers(module: Module, rng: np.random.Generator) -> dict[str, Array]:
    """Numbers for the whole of every weight of a module."""
    found = {}
    for node in module.nodes():
        if node.op == "weight":
            name = node.attrs["name"]
            shape = list(node.attrs["shape"])
            for shard in module.shards.get(name, ()):
                shape[shard.axis] *= shard.group.size
            found[name] = rng.standard_normal(shape) / 4
    return found


def test_megatrons_tensor_parallel_dispatcher_trains() -> None:
    module = read_moe(EXAMPLES / "megatron_dispatcher_tp.moe").module
    rng = np.random.default_rng(6)
    (x,) = module.main.inputs
    assert [str(d) for d in x.type.dims] == ["T", "64"]
    check(module, [rng.standard_normal((2, 64)) for _ in range(RANKS)], numbers(module, rng), 1)


@pytest.mark.parametrize("tokens", [[3, 3, 3, 3], [1, 5, 2, 1]])
def test_megatrons_dispatcher_trains(tokens: list[int]) -> None:
    """Its reads, host steps and exchanges in forward; backward exchanges by the same lists and reads nothing."""
    module = read_moe(EXAMPLES / "megatron_dispatcher.moe").module
    rng = np.random.default_rng(2)
    weights = numbers(module, rng)
    got = check(module, [rng.standard_normal((n, 64)) for n in tokens], weights, 1)
    made = joint(module)
    reads = [sum(n.op == "to_host" for n in m.nodes()) for m in (module, made)]
    assert reads[0] == reads[1] == 4
    down = np.concatenate(by_rank(got, "d_down"))
    idle = [e for e in range(16) if not down[e].any()]
    assert len(idle) >= 16 - 2 * sum(tokens)


def test_all_passes_keep_a_dispatchers_gradients() -> None:
    module = read_moe(EXAMPLES / "megatron_dispatcher.moe").module
    rng = np.random.default_rng(4)
    weights = numbers(module, rng)
    xs, dys = ([rng.standard_normal((3, 64)) for _ in range(RANKS)] for _ in range(2))
    before = run(joint(module), given(x=xs, d_y=dys), weights, fp64=True)
    made = copy(module)
    PassManager(train_passes()).run(made, Context())
    assert saved_values(made)
    after = run(made, given(x=xs, d_y=dys), weights, fp64=True)
    assert sorted(after) == sorted(before)
    for name, expected in before.items():
        np.testing.assert_allclose(after[name], expected, rtol=0, atol=1e-9, err_msg=name)
