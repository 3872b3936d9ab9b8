"""Events between the streams of a program: where one needs another, enough of them; and until when memory is used."""

from __future__ import annotations

from moec.codegen.program import Copy, Launch, Memset, Program, Tensor, accesses
from moec.codegen.program_text import parse_program, print_program
from moec.codegen.steps import Bind, Collective, HostOp, Record, Wait
from moec.codegen.streams import unordered, with_events
from moec.ir.group import Group
from moec.ir.symbol import sym


def touches(step):  # type: ignore[no-untyped-def]
    return accesses(step, {})


STEPS = (
    Memset("a"),
    Copy("parked", "a", stream="copy"),
    Memset("b"),
    Collective("all_gather", "ep", "b", "all", 8),
    Copy("counts", "all", stream="copy"),
    HostOp("reduce_sum", "rows", ("counts",), (("axes", (0,)), ("keepdims", False))),
    Bind("R", "rows", 0, 64),
    Copy("back", "parked", stream="copy"),
    Copy("c", "back"),
)


def test_events_stand_where_streams_meet() -> None:
    steps = with_events(STEPS, touches)
    assert [s for s in steps if not isinstance(s, Record | Wait)] == list(STEPS)
    waits = [(steps[steps.index(w) + 1], w.stream) for w in steps if isinstance(w, Wait)]
    assert waits == [
        (STEPS[1], "copy"),
        (STEPS[3], "comm"),
        (STEPS[4], "copy"),
        (STEPS[5], "host"),
        (STEPS[8], "compute"),
    ]
    for w in [s for s in steps if isinstance(s, Wait)]:
        assert steps.index(
            Record(w.event, next(s.stream for s in steps if isinstance(s, Record) and s.event == w.event))
        )
    assert unordered(steps, touches) == []


def test_a_wait_that_is_left_out_is_found() -> None:
    steps = with_events(STEPS, touches)
    for wait in [s for s in steps if isinstance(s, Wait)]:
        at = steps.index(wait)
        without = [s for s in steps if s is not wait]
        assert any(second == at for _, second, _ in unordered(without, touches)), wait


def test_one_stream_needs_no_events() -> None:
    steps = [Memset("a"), Copy("b", "a"), Memset("b")]
    assert with_events(steps, touches) == steps


def test_written_events_are_taken_into_account() -> None:
    steps = [Memset("a"), Record("mine"), Wait("mine", "copy"), Copy("b", "a", stream="copy")]
    assert with_events(steps, touches) == steps


def test_memory_is_in_use_until_the_other_stream_is_known_to_be_done() -> None:
    """``a`` is copied away beside what computes on; whoever takes its place starts behind the wait for that copy."""
    names = ("a", "b", "c", "parked")
    tensors = tuple(Tensor(n, "f32", (64,), "host" if n == "parked" else "temp") for n in names)
    steps = (
        Memset("a"),
        Record("made"),
        Wait("made", "copy"),
        Copy("parked", "a", stream="copy"),
        Record("gone", "copy"),
        Memset("b"),
        Wait("gone"),
        Memset("c"),
    )
    cores = {"aic": 1, "aiv": 1}
    program = Program("p", {}, (), tensors, (), steps, cores)
    assert program.lifetimes() == {"a": (0, 5), "b": (5, 5), "c": (7, 7)}
    without = Program("p", {}, (), tensors, (), tuple(s for s in steps if s != Wait("gone")), cores)
    assert without.lifetimes()["a"] == (0, 6)


def test_their_text_form_is_exact() -> None:
    t = sym("T")
    steps = (
        *with_events(STEPS, touches),
        Collective("all_to_all_v", "ep", "a", "b", 2 * t, send="counts", receive="rows", nodes=("x (a:1)",)),
        Collective("all_reduce", "ep", "a", "b", t * (t + 1), "max", stream="other"),
        HostOp("numbers", "rows", (), (("values", ("2*T", "3")),), ("dims",)),
        Bind("R2", "rows", 0, 2 * t, ("bind_size (a:2)",)),
        Launch("k", (("x", "a"),), (("n", t * (t + 1)),), ("matmul (a:3)",), when=2 * t),
        Launch("k", (("x", "a"),), (), (), "comm", t),
    )
    tensors = (Tensor("me", "i64", (), "rank", "ep"), Tensor("parked", "f32", (8,), "host"))
    program = Program("p", {"T": (1, 8)}, (), tensors, (), steps, {"aic": 1, "aiv": 2}, groups=(Group("ep", 4, 2 * t),))
    text = print_program(program)
    assert parse_program(text) == program
    assert print_program(parse_program(text)) == text
