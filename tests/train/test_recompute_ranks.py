"""What ranks exchange, exchanged a second time in backward rather than kept: every bit stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from moec.autodiff import backward_nodes, saved_values
from moec.diagnostics import Refusal
from moec.eval import run
from moec.ir.graph import Module, Node
from moec.memory.build import build
from moec.memory.plan import everything_kept, order
from moec.memory.replay import replay
from moec.memory.solve import plan_memory
from moec.ops.verify import verify
from moec.passes.base import Context, PassManager, Result, Step, parse_passes
from moec.passes.plan_memory import apply as apply_plan
from moec.passes.saved import Joint, kind_of
from tests.support.small_pangu import SIZES, feeds, joint
from tests.support.train import copy

Array = np.ndarray
ROWS = SIZES["p"] * SIZES["mbs"] * 3
KEPT = {**SIZES, "arriving": ROWS}
CHOICES = {
    "dispatch": {"gather"},
    "gathered": {"all_gather", "kv_latent"},
    "mla_up": {"q_rope", "slice.2", "slice.3", "slice.4"},
    "mla_up+gathered+norm": {"q_rope", "slice.2", "all_gather", "kv_latent", "a"},
    "act+dispatch+mla_up+norm+permute": {"gather", "inner", "a", "rms_norm", "q_rope", "h"},
}
"""Kinds, and saves that are gone with them."""


@pytest.fixture(scope="module")
def module() -> Module:
    return joint()


@pytest.fixture(scope="module")
def expected(module: Module) -> dict[str, Array]:
    return run(module, *feeds(module, 1))


def names(module: Module) -> list[str]:
    return [s.name for s in saved_values(module)]


def kept(module: Module) -> int:
    return sum(s.bytes(KEPT) or 0 for s in saved_values(module))


def apply(module: Module, passes: str) -> list[Step]:
    steps = list(PassManager(parse_passes(passes)).steps(module, Context(tune=SIZES)))
    verify(module)
    return steps


def exchanges_of(module: Module) -> list[Node]:
    return [n for n in module.main if n.op in ("all_to_all_v", "all_gather")]


def again(module: Module) -> list[Node]:
    """Collectives of backward that a second run made."""
    return [n for n in exchanges_of(module) if "recompute" in n.origin.rewrites]


@pytest.mark.parametrize("what", CHOICES)
def test_every_bit_stays_and_fewer_bytes_are_kept(module: Module, expected: dict[str, Array], what: str) -> None:
    made = copy(module)
    apply(made, f"recompute{{what={what}}},cse,canonicalise,cse,dce")
    assert not CHOICES[what] & set(names(made)) and CHOICES[what] <= set(names(module))
    assert kept(made) < kept(module)
    got = run(made, *feeds(made, 1))
    assert {n: a.tobytes() for n, a in got.items()} == {n: a.tobytes() for n, a in expected.items()}


@pytest.mark.parametrize(("what", "op", "count"), [("dispatch", "all_to_all_v", 1), ("gathered", "all_gather", 2)])
def test_the_second_exchange_waits_for_backward(module: Module, what: str, op: str, count: int) -> None:
    made = copy(module)
    apply(made, f"recompute{{what={what}}},cse,canonicalise,cse,dce")
    assert [n.op for n in again(made)] == [op] * count
    behind = backward_nodes(made.main)
    assert all(n in behind for n in again(made))
    order = {n: i for i, n in enumerate(made.main)}
    seam = max(order[n] for n in made.main if n.op == "save")
    assert all(order[n] > seam for n in again(made))


def test_the_lists_are_those_of_the_first_time(module: Module) -> None:
    made = copy(module)
    apply(made, "recompute{what=dispatch},cse,canonicalise,cse,dce")
    (second,) = again(made)
    first = next(n for n in exchanges_of(made) if n.op == "all_to_all_v")
    saves = [v.producer for v in second.operands[1:] if v is not None]
    assert [s.op for s in saves if s is not None] == ["save", "save"]
    assert [s.operand(0) for s in saves if s is not None] == list(first.operands[1:])


@pytest.mark.parametrize("what", ["all", "permute", "act+norm", "gather"])
def test_nothing_is_exchanged_again_unless_it_is_named(module: Module, what: str) -> None:
    made = copy(module)
    steps = apply(made, f"recompute{{what={what}}},dce")
    assert not again(made) and {"gather", "all_gather"} <= set(names(made))
    if what == "all":
        reasons = [m.reason for m in steps[0].result.near_misses]
        assert any(r.startswith("all_gather: all_gather may not run a second time unless 'gathered'") for r in reasons)
        assert any(r.startswith("mixed.2: reduce_scatter may not run a second time") for r in reasons)


def test_kinds(module: Module) -> None:
    found = {n.attrs["name"]: kind_of(n.operand(0)) for n in Joint(module.main).saves}
    wanted = {
        "gather": "dispatch",
        "kv_latent": "gathered",
        "k_rope": "gathered",
        "slice.3": "mla_up",
        "q_rope": "mla_up",
    }
    assert {n: found[n] for n in wanted} == wanted
    assert {found[n] for n in ("coming", "leaving", "order", "positions", "experts")} == {"routing"}


def test_swapped_rows_of_experts_come_back(module: Module, expected: dict[str, Array]) -> None:
    made = copy(module)
    apply(made, "recompute{what=act+dispatch},swap{what=grouped_matmul},cse,canonicalise,cse,dce")
    assert "grouped_matmul" not in names(made)
    got = run(made, *feeds(made, 1))
    assert {n: a.tobytes() for n, a in got.items()} == {n: a.tobytes() for n, a in expected.items()}


@pytest.mark.parametrize("exchanges", [False, True])
def test_a_plan_exchanges_again_only_where_it_may(module: Module, expected: dict[str, Array], exchanges: bool) -> None:
    """Everything takes a microsecond and nothing may be parked: the smallest budget that some plan meets."""
    made = copy(module)
    ops = ("all_to_all_v", "all_gather") if exchanges else ()
    built = build(
        made.main,
        KEPT,
        lambda node: 1.0,
        kind_of,
        workspace=lambda node: 0,
        fixed_bytes={},
        in_flight=94,
        exchanges=ops,
    )
    whole = replay(built.problem, order(built.problem, everything_kept(built.problem))).peak_bytes
    solved = None
    for percent in (90, 80, 70, 60, 50, 45, 40, 35, 30, 25):
        try:
            solved = plan_memory(built.problem, whole * percent // 100, exact=False)
        except Refusal:
            break
    assert solved is not None
    apply_plan(built, solved, Result())
    PassManager(parse_passes("cse,canonicalise,cse,dce")).run(made, Context(tune=SIZES))
    verify(made)
    behind = backward_nodes(made.main)
    second = [n for n in exchanges_of(made) if n in behind and "plan-memory" in n.origin.rewrites]
    assert bool(second) == exchanges
    got = run(made, *feeds(made, 1))
    assert {n: a.tobytes() for n, a in got.items()} == {n: a.tobytes() for n, a in expected.items()}
