"""The function that is made of a kernel's statements runs as they do one by one, and what its accesses must come after
is what follows from every byte that they touch."""

from __future__ import annotations

import pytest
from attention_layers import CAPS, Net, program

from moec.codegen import builder
from moec.codegen.courses import SMALL_MMAD, Courses, by_unit_flags
from moec.codegen.interpret import Access, Event, trace
from moec.codegen.kernel_ir import PIPES, For, Instr, Kernel, LoadScalar, StoreScalar, Witness
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.vector.sums import Sums, sums_kernel
from moec.codegen.scalar import Var
from moec.codegen.tiling import CubeTile
from moec.codegen.traces import NUMBER, SAMPLE, Conflicts, alone, cores_of, interleaved


def sums() -> Kernel:
    return sums_kernel("sums", CAPS, Sums(None, None, 70, "f16", "f32", 128))


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, Kernel]:
    """As their writers leave them and with their flags: of each kind of core, one with lists of experts."""
    found: dict[str, Kernel] = {}
    synchronise = builder.synchronise

    def noted(kernel: Kernel) -> Kernel:
        found[kernel.name] = kernel
        found[f"{kernel.name} with flags"] = done = synchronise(kernel)
        return done

    monkeypatch.setattr(builder, "synchronise", noted)
    sums()
    grouped_matmul_kernel("gmm", CAPS, CubeTile(32, 48, 64, 32, 2), Grouped(4, 96, 200, "bf16", "bf16", gathered_hi=90))
    program({"x": Net("f32", 2, 1, 24, 16, causal=True, packed=True)}, False)
    assert {k.core for k in found.values()} == {"aic", "aiv", "mix"}
    return found


def needs(events: list[tuple[int, Event]]) -> list[tuple[tuple[int, int], ...]]:
    """Of each access the last one of each pipe that it must come after, from all that came before."""
    past: list[tuple[Access, str, int, int]] = []
    out: list[tuple[tuple[int, int], ...]] = []
    for seat, e in events:
        pipe, latest = seat * len(PIPES) + NUMBER[e.pipe], dict[int, int]()
        mine = [
            (a, a.space if a.space.startswith("GM") else f"{seat} {a.space}")
            for a in e.accesses
            if not (a.space == "L0C" and by_unit_flags(e.stmt))
        ]
        for a, space in mine:
            for b, other, number, by in past:
                shared = other == space and b.lo < a.hi and a.lo < b.hi and (a.write or b.write)
                if shared and (by != pipe or e.pipe == "V" or (b.write and small_mmad(e))):
                    latest[by] = max(latest.get(by, -1), number)
        for a, space in mine:
            if a.write:
                past = [p for p in past if not (p[1] == space and a.lo <= p[0].lo and p[0].hi <= a.hi)]
            past.append((a, space, len(out), pipe))
        out.append(tuple(sorted(latest.items())))
    return out


def small_mmad(e: Event) -> bool:
    r = e.resolved
    if e.pipe != "M" or r is None or r.p["cmatrixInitVal"]:
        return False
    return -(-r.n("m") // 16) * -(-r.n("n") // 16) < SMALL_MMAD


def test_courses_are_what_statements_do(kernels: dict[str, Kernel]) -> None:
    """Which statements run, in which order, with which event ids, and what their accesses must come after."""
    for name, kernel in kernels.items():
        courses = Courses(kernel, SAMPLE)
        for witness in kernel.witnesses[::3]:
            for core in cores_of(witness):
                told = waits(courses, witness, core)
                runs = alone(courses, witness, core)
                order = [(seat, entry) for seat, entry in interleaved(courses, runs)]
                walks = [trace(kernel, witness, core, SAMPLE, seat) for seat in range(len(runs))]
                events = [(seat, next(walks[seat])) for seat, _ in order]
                assert all(next(walk, None) is None for walk in walks), name
                for (_, entry), (_, event) in zip(order, events, strict=True):
                    leaf = courses.leaves[entry[0]]
                    assert (leaf.path, leaf.stmt) == (event.path, event.stmt), name
                    if leaf.kind in ("set", "wait", "cross set", "cross wait"):
                        assert entry[1] == event.id, name
                accesses = [(s, e) for s, e in events if isinstance(e.stmt, Instr | LoadScalar | StoreScalar)]
                assert told == needs(accesses), name


def waits(courses: Courses, witness: Witness, core: int) -> list[tuple[tuple[int, int], ...]]:
    found = Conflicts(courses)
    for seat, entry in interleaved(courses, alone(courses, witness, core)):
        if courses.leaves[entry[0]].kind == "access":
            found.add(seat, entry)
    return found.needs


def test_marks_tell_the_scalars_of_their_places() -> None:
    """The variable of a loop, before a statement in it and behind the loop."""
    kernel = sums()
    at, loop = next((i, s) for i, s in enumerate(kernel.body) if isinstance(s, For))
    marks = {((at, 0, 0), False): [0, Var(loop.var) * 2 + 1], ((at,), True): [7]}
    courses = Courses(kernel, SAMPLE, marks)
    (run,) = alone(courses, kernel.witnesses[-1], 0)
    inside = [e[1:] for e in run if courses.leaves[e[0]].place == ((at, 0, 0), False)]
    assert inside and all(number % 2 for _, number in inside) and inside[0][0] == 0
    assert [e[1:] for e in run if courses.leaves[e[0]].place == ((at,), True)] == [(7,)]
