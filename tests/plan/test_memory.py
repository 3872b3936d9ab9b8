"""The planner against brute force, and the replay against injected faults."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moec.diagnostics import CheckFailed, Refusal
from moec.memory.plan import Choice, Event, Plan, check_choice, everything_kept, order, pruned
from moec.memory.problem import COPY_US, Problem, Step, Tensor
from moec.memory.program import least_time
from moec.memory.replay import replay
from moec.memory.solve import plan_memory

MIB = 1 << 20


@st.composite
def problems(draw: st.DrawFn, most: int = 6) -> Problem:
    """Small training steps: a forward of up to ``most`` tensors, a chain with skips, and a backward that reads them."""
    count = draw(st.integers(2, most))
    tensors = [Tensor("x", 0)]
    forward: list[Step] = []
    made: list[int] = []
    for i in range(count):
        must = "a choice" if draw(st.integers(0, 5)) == 0 else ""
        tensors.append(Tensor(f"t{i}", draw(st.integers(1, 64)) * MIB, must))
        reads = {made[-1]} if made else {0}
        if len(made) > 1 and draw(st.booleans()):
            reads.add(draw(st.sampled_from(made)))
        fixed = "a collective" if draw(st.integers(0, 7)) == 0 else ""
        took, workspace = float(draw(st.integers(50, 4000))), draw(st.sampled_from([0, 0, 40])) * MIB
        forward.append(Step(f"f{i}", took, tuple(sorted(reads)), (len(tensors) - 1,), fixed, workspace))
        made.append(len(tensors) - 1)
    backward: list[Step] = []
    for i in reversed(range(count)):
        tensors.append(Tensor(f"g{i}", tensors[made[i]].bytes))
        reads = draw(st.sampled_from([{made[i]}, set(forward[i].reads), {made[i], *forward[i].reads}, set()]))
        if backward:
            reads.add(backward[-1].writes[0])
        workspace = draw(st.sampled_from([0, 0, 40])) * MIB
        backward.append(Step(f"b{i}", 2 * forward[i].us, tuple(sorted(reads)), (len(tensors) - 1,), "", workspace))
    in_flight = draw(st.integers(1, 4))
    pcie = draw(st.sampled_from([0.0, 2.5e4, 1e5]))
    return Problem(tuple(tensors), tuple(forward), tuple(backward), {"weights": 8 * MIB}, in_flight, pcie, 1 << 40)


def choices(problem: Problem) -> list[Choice]:
    """Every choice: each candidate kept, swapped or neither, with the fewest second runs that this needs."""
    found = []
    ways = (0, 1, 2) if problem.pcie else (0, 2)
    for fates in itertools.product(ways, repeat=len(problem.candidates)):
        kept = frozenset(v for v, f in zip(problem.candidates, fates, strict=True) if f == 0)
        swapped = frozenset(v for v, f in zip(problem.candidates, fates, strict=True) if f == 1)
        choice = pruned(problem, Choice(kept, swapped, problem.recomputable))
        if not check_choice(problem, choice):
            found.append(choice)
    return list(dict.fromkeys(found))


def model_time(problem: Problem, choice: Choice) -> float:
    """Added time as the program counts it: second runs, and copies that the compute of a period does not hide."""
    again = sum(problem.forward[n].us for n in choice.again)
    copies = sum(problem.tensors[v].bytes / problem.pcie + COPY_US for v in choice.swapped) if problem.pcie else 0.0
    hidden = problem.us if problem.in_flight > 1 else sum(s.us for s in problem.backward)
    return again + max(0.0, copies - hidden - again)


def model_bytes(problem: Problem, choice: Choice) -> int:
    """The peak as the program counts it, besides what is fixed: step by step, whoever made what is read."""
    size = [t.bytes for t in problem.tensors]
    kept = sum(size[v] for v in choice.kept)
    swapped = sum(size[v] for v in choice.swapped)
    left = max(0.0, swapped - problem.pcie * sum(s.us for s in problem.forward))
    most = problem.in_flight * (kept + left)
    others = (problem.in_flight - 1) * kept

    def used(steps: tuple[Step, ...], v: int) -> list[int]:
        return [i for i, s in enumerate(steps) if v in s.reads or v in s.writes]

    for n in choice.again:
        step = problem.forward[n]
        at_once = {*step.reads, *step.writes} - set(problem.given)
        most = max(most, others + sum(size[v] for v in at_once) + step.workspace)
    made = [v for s in problem.forward for v in s.writes]
    for i, step in enumerate(problem.forward):
        at = [v for v in made if used(problem.forward, v)[0] <= i]
        here = sum(size[v] for v in at if used(problem.forward, v)[-1] >= i or v in choice.kept)
        most = max(most, others + here + step.workspace)
    for i, step in enumerate(problem.backward):
        ahead = [v for v in made if (u := used(problem.backward, v)) and u[0] > i and v in choice.kept]
        spans = {v for s in problem.backward for v in (*s.reads, *s.writes) if v not in problem.given}
        open_ = [v for v in spans if used(problem.backward, v)[0] <= i <= used(problem.backward, v)[-1]]
        most = max(most, others + sum(size[v] for v in (*ahead, *open_)) + step.workspace)
    return int(most)


def held(problem: Problem, choice: Choice) -> int:
    return problem.in_flight * sum(problem.tensors[v].bytes for v in choice.kept)


@settings(max_examples=60, deadline=None)
@given(problems(), st.floats(0.0, 1.0))
def test_no_choice_is_better_than_the_solvers(problem: Problem, share: float) -> None:
    limit = int(share * model_bytes(problem, everything_kept(problem))) // MIB * MIB  # as whole as the tensors are
    best = min((model_time(problem, c) for c in choices(problem) if model_bytes(problem, c) <= limit), default=None)
    found = least_time(problem, limit, 10.0)
    if found is None:
        assert best is None
        return
    choice, bound = found
    assert best is not None and not check_choice(problem, choice)
    assert model_bytes(problem, choice) <= limit * (1 + 1e-6) + 1  # a fraction of a byte that copies leave
    assert model_time(problem, choice) == pytest.approx(best, rel=1e-3, abs=0.5)
    assert bound <= best + 0.5


@settings(max_examples=30, deadline=None)
@given(problems(), st.floats(0.3, 1.0), st.booleans())
def test_a_plan_keeps_its_budget_and_is_no_better_than_the_best_that_replay_knows(
    problem: Problem, share: float, exact: bool
) -> None:
    budget = int(share * replay(problem, order(problem, everything_kept(problem))).peak_bytes)
    outcomes = [replay(problem, order(problem, c)) for c in choices(problem)]
    best = min((o.period_us for o in outcomes if o.peak_bytes <= budget), default=None)
    try:
        solved = plan_memory(problem, budget, exact, 10.0)
    except Refusal:
        return
    assert best is not None, "the plan keeps a budget that no choice keeps"
    assert replay(problem, solved.plan) == solved.outcome and solved.outcome.peak_bytes <= budget
    assert solved.outcome.period_us >= best - 1e-6
    assert solved.bound_us <= best - problem.us + 0.5, "a choice adds less than the bound"


@settings(max_examples=60, deadline=None)
@given(problems())
def test_every_choice_replays_and_adds_what_it_runs_again(problem: Problem) -> None:
    plain = replay(problem, order(problem, everything_kept(problem)))
    assert plain.period_us == pytest.approx(problem.us)
    for choice in choices(problem)[:: max(1, len(choices(problem)) // 12)]:
        outcome = replay(problem, order(problem, choice))
        again = sum(problem.forward[n].us for n in choice.again)
        assert outcome.period_us - outcome.waited_us == pytest.approx(problem.us + again)
        assert outcome.peak_bytes >= sum(problem.fixed_bytes.values()) + held(problem, choice)


def chain(in_flight: int = 2) -> Problem:
    """x -> a -> b -> c; backward reads c, b and a."""
    tensors = tuple(
        Tensor(n, s * MIB) for n, s in (("x", 0), ("a", 8), ("b", 4), ("c", 2), ("dc", 2), ("db", 4), ("da", 8))
    )
    forward = (Step("fa", 100.0, (0,), (1,)), Step("fb", 100.0, (1,), (2,)), Step("fc", 100.0, (2,), (3,)))
    backward = (Step("bc", 200.0, (3, 2), (4,)), Step("bb", 200.0, (4, 2, 1), (5,)), Step("ba", 200.0, (5, 1, 0), (6,)))
    return Problem(tensors, forward, backward, {"weights": MIB}, in_flight, 1e5, 1 << 40)


def test_peak_and_time_of_a_plan_worked_by_hand() -> None:
    problem = chain()
    plain = replay(problem, order(problem, everything_kept(problem)))
    # two chunks keep a, b, c (28 MiB) beside the weights (1); backward adds dc (2), drops c, adds db (4), drops b and
    # dc, adds da (8): 1 + 28 + 2 = 31; 31 - 2 + 4 = 33; 33 - 4 - 2 + 8 = 35
    assert plain.peak_bytes == 35 * MIB and plain.period_us == 900.0
    again = replay(problem, order(problem, Choice(frozenset({1, 3}), frozenset(), frozenset({1}))))
    # a and c of both (20); b is made again (4): 1 + 20 + 4 + 2 = 27, - c 2 + 4 = 29, - b 4 - dc 2 + 8 = 31
    assert again.peak_bytes == 31 * MIB and again.period_us == 1000.0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("early free", "reads a, which is not on the card"),
        ("double free", "frees a, which is not on the card"),
        ("never freed", "never freed"),
        ("late reload", "reads a, which is not on the card"),
        ("swap of what is gone", "copies out a, which is not on the card"),
        ("reload twice", "copies back a, which is not on the host"),
        ("made twice", "writes b, which is on the card already"),
        ("swap of a storage that a view still reads", "fb reads a, which is not on the card"),
    ],
)
def test_replay_catches(fault: str, reason: str) -> None:
    problem = chain()
    swapping = order(problem, Choice(frozenset({2, 3}), frozenset({1}), frozenset()))
    keeping = order(problem, everything_kept(problem))

    def without(events: tuple[Event, ...], what: str, index: int) -> tuple[Event, ...]:
        return tuple(e for e in events if e != Event(what, index))

    first, last = keeping.backward[0], keeping.backward[-1:]
    plans = {
        "early free": replace(keeping, backward=(first, Event("free", 1), *without(keeping.backward[1:], "free", 1))),
        "double free": replace(keeping, backward=(*keeping.backward, Event("free", 1))),
        "never freed": replace(keeping, backward=without(keeping.backward, "free", 1)),
        "late reload": Plan(swapping.forward, (*without(swapping.backward, "in", 1), Event("in", 1)), ()),
        "swap of what is gone": replace(swapping, forward=(*swapping.forward, Event("out", 1))),
        "reload twice": replace(swapping, backward=(Event("in", 1), Event("in", 1), *swapping.backward)),
        "swap of a storage that a view still reads": replace(
            swapping, forward=(swapping.forward[0], Event("out", 1), *without(swapping.forward[1:], "out", 1))
        ),
        "made twice": replace(keeping, backward=(Event("again", 1), *keeping.backward)),
    }
    assert last
    with pytest.raises(CheckFailed, match=reason):
        replay(problem, plans[fault])


def test_a_budget_that_nothing_keeps_is_refused_with_what_is_fixed() -> None:
    with pytest.raises(Refusal, match=r"no plan keeps the peak within 512 KiB \(weights 1 MiB fixed\)"):
        plan_memory(chain(), MIB // 2)


def test_time_is_monotone_in_the_budget() -> None:
    problem = replace(chain(4), pcie=0.0)
    peak = replay(problem, order(problem, everything_kept(problem))).peak_bytes
    times = []
    for share in (1.0, 0.9, 0.8, 0.7, 0.6):
        try:
            times.append(plan_memory(problem, int(share * peak)).added_us)
        except Refusal:
            times.append(float("inf"))
    assert times == sorted(times) and times[0] == 0.0 and times[-1] > 0.0


def test_a_step_that_reads_what_is_not_there_is_no_problem_to_plan() -> None:
    with pytest.raises(ValueError, match="reads b before it is written"):
        Problem((Tensor("a", 1), Tensor("b", 1)), (Step("f", 1.0, (1,), (0,)), Step("g", 1.0, (), (1,))), ())


def test_what_a_second_run_makes_beside_what_is_wanted_is_not_kept_as_well() -> None:
    """A step of two results that runs again for one of them: the other is there with it."""
    tensors = tuple(Tensor(n, 8 * MIB) for n in ("x", "y", "lse", "g"))
    problem = Problem(tensors, (Step("f", 10.0, (0,), (1, 2)),), (Step("b", 20.0, (1, 2), (3,)),))
    choice = pruned(problem, Choice(frozenset({1}), frozenset(), frozenset({0})))
    assert choice == Choice(frozenset(), frozenset(), frozenset({0}))
    assert replay(problem, order(problem, choice)).period_us == 40.0


@settings(max_examples=60, deadline=None)
@given(problems(5), st.integers(5, 40), st.data())
def test_chunks_that_are_alike_are_not_replayed_one_by_one(problem: Problem, many: int, data: st.DataObject) -> None:
    """Whatever the choice and the link: few chunks that stand for many see what replaying each sees."""
    many_in_flight = replace(problem, in_flight=many)
    choice = data.draw(st.sampled_from(choices(many_in_flight)))
    plan = order(many_in_flight, choice)
    each, few = replay(many_in_flight, plan, few=many), replay(many_in_flight, plan, few=4)
    assert (few.peak_bytes, few.parts, few.host_bytes) == (each.peak_bytes, each.parts, each.host_bytes)
    assert few.period_us == pytest.approx(each.period_us) and few.waited_us == pytest.approx(each.waited_us, abs=1e-3)
