"""The order of copies that is worked out for all cores and iterations at once is the one of running them in turn."""

from __future__ import annotations

import numpy as np
import pytest
from cost_kernels import add, load, random_kernels, store
from cost_kernels import kernel as make
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moec.codegen.interpret import trace
from moec.codegen.kernel_ir import ITEMSIZE, Assign, For, GmRef, If, Instr, Kernel, Let, Witness
from moec.codegen.scalar import Core, Expr, Var, binary, eq
from moec.targets.ascend.model import order
from moec.targets.ascend.model.cores import seats_of
from moec.targets.ascend.model.expand import Expansion
from moec.targets.ascend.model.locality import locality
from moec.targets.ascend.model.program import numbers_in, walk
from moec.targets.ascend.model.slicing import handed_on
from moec.targets.ascend.model.source import ARRAYS, NUMBERS, source

Steps = list[tuple[str, int, tuple[int, ...]]]


def in_turn(kernel: Kernel, counts: list[int], cores: int, core: int) -> Steps:
    """Name, first byte and run-time parameters of each copy of a core, one after the other."""
    out: Steps = []
    for event in trace(kernel, Witness((("n", 3),), cores, (("c", tuple(counts)),)), core):
        if isinstance(event.stmt, Instr) and any(isinstance(r, GmRef) for r in event.stmt.operands):
            assert event.resolved is not None
            first = next(a.lo for a in event.accesses if a.space.startswith("GM"))
            open_ = tuple(int(event.resolved.p[k]) for k, v in event.stmt.params if isinstance(v, Expr))
            out.append((event.stmt.op, first, open_))
    return out


def at_once(kernel: Kernel, counts: list[int], cores: int, limit: int) -> list[Steps]:
    """The same by the expansion, of every core the first ``limit``."""
    body = numbers_in(kernel, {"n": 3}, cores, "aiv")
    wanted = {}
    for stmt in walk(body):
        for ref in stmt.operands if isinstance(stmt, Instr) else ():
            if isinstance(stmt, Instr) and isinstance(ref, GmRef):
                first = binary("*", ref.offset, ITEMSIZE[ref.dtype])
                wanted[stmt] = (first, *(v for _, v in stmt.params if isinstance(v, Expr)))
    facts = {"idx": np.arange(cores), "sub": np.zeros(cores, np.int64)}
    found: list[dict[int, tuple[str, int, tuple[int, ...]]]] = [{} for _ in range(cores)]
    for number, core, place, values in Expansion(body, wanted, facts, {"c": counts}, limit).found():
        columns = [np.broadcast_to(v, core.shape) for v in values]
        for i, (c, p) in enumerate(zip(core.tolist(), place.tolist(), strict=True)):
            assert p not in found[c]
            first, *rest = (int(column[i]) for column in columns)
            found[c][p] = (list(wanted)[number].op, first, tuple(rest))
    return [[steps[p] for p in range(len(steps))] for steps in found]


@given(random_kernels(), st.lists(st.integers(0, 7), min_size=8, max_size=8), st.sampled_from([1, 5, 40, 100_000]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_all_at_once_is_one_after_the_other(kernel: Kernel, counts: list[int], limit: int) -> None:
    cores = int(kernel.blocks)  # type: ignore[call-overload]
    assert at_once(kernel, counts, cores, limit) == [in_turn(kernel, counts, cores, c)[:limit] for c in range(cores)]


def nested() -> Kernel:
    """A ring of three slots that inner loops of changing length move on, and a variable that is no sum."""
    ring, other, i, j = Var("ring"), Var("other"), Var("i"), Var("j")
    inner = (load(64, ring * 1000 + j), Assign(ring, (ring + 1) % 3))
    odd = If(eq(i % 2, 1), (Assign(ring, (ring + j + 1) % 3), load(64, 7)), (store(64, i),))
    last = (Assign(other, i * 2), add(64))
    outer = (store(64, other), For("j", 0, i % 4 + 1, 1, (*inner, odd)), *last, store(64, ring))
    return make((Let(ring, 1), Let(other, 5), For("i", Core("idx"), 30, 1, outer), store(64, ring * 3 + other)), 5)


@pytest.mark.parametrize("limit", [1, 17, 33, 1000])
def test_what_iterations_hand_on(limit: int) -> None:
    kernel = nested()
    assert at_once(kernel, [0] * 8, 5, limit) == [in_turn(kernel, [0] * 8, 5, c)[:limit] for c in range(5)]
    loop = kernel.body[2]
    assert isinstance(loop, For)
    handed = handed_on(loop.body, lambda stmt: None)
    assert (set(handed.sums), set(handed.others)) == ({"ring"}, {"other"})
    assert handed.sums["ring"].modulus == 3


def test_a_long_kernel_is_looked_at_from_its_start() -> None:
    """A million copies a core, of which the first are wanted: no more than a few times as many are made."""
    kernel = make((For("i", 0, 1000, 1, (For("j", 0, 1000, 1, (load(64, Var("i") * 1000 + Var("j")),)),)),), 2)
    made = 0

    def counted(*args: object) -> None:
        nonlocal made
        found = Expansion(*args)  # type: ignore[arg-type]
        made += sum(len(f.element) for f in found.done)
        assert [len(core) for _, core, _, _ in found.found() if len(core)]

    body = numbers_in(kernel, {"n": 3}, 2, "aiv")
    (stmt,) = (s for s in walk(body) if isinstance(s, Instr))
    facts = {"idx": np.arange(2), "sub": np.zeros(2, np.int64)}
    counted(body, {stmt: (Var("i") * 1000 + Var("j"),)}, facts, {}, 1500)
    assert 3000 <= made <= 15_000


def test_repeated_parts_are_written_once() -> None:
    x = Var("x")
    tail = binary("min", x, 64)
    parts = (tail, binary("*", tail, 2), binary("%", tail, x))
    for dialect in (NUMBERS, ARRAYS):
        lines, results = source(parts, lambda s, offset: "v", dialect)
        assert len(lines) == 2 and len(results) == 3  # the variable and the minimum
        assert "".join((*lines, *results)).count("64") == (2 if dialect is NUMBERS else 1)


def test_blocks_of_a_sample() -> None:
    """Three cores read the same ten tiles twice; what one of a share of blocks says is the same tiles twice too."""
    one = For("t", 0, 10, 1, (load(4096, Var("t") * 4096),))
    kernel = make((For("again", 0, 2, 1, (one,)), store(64)), 3)
    copies = order.copies_of(kernel, {"n": 10}, seats_of("aiv", 3), 3, {}, 1)
    assert len(copies.sample) == 3 * 21 and len(copies.blocks) == 11
    assert {(b.tensor, b.writes, b.bytes) for b in copies.blocks} == {("x", False, 16384), ("y", True, 256)}
    near = locality(copies, 100 * 16384)
    assert near.together == {"x": 3} and near.lost == {"x": 0}
    assert locality(copies, 5 * 16384).lost == {"x": pytest.approx(1 / 5)}  # of 50 re-reads 10
    few = order.copies_of(kernel, {"n": 10}, seats_of("aiv", 3), 3, {}, 4)
    assert 0 < len(few.sample) < 63 and len(few.sample) % 3 == 0
