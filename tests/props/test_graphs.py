"""Properties of random layer IR: it verifies, evaluates, prints and reads back; edits keep def-use lists exact."""

from __future__ import annotations

from graphs import inputs_of, modules
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moec.diagnostics import Refusal
from moec.eval import run
from moec.ir.attrs import UnreadData
from moec.ir.compare import modules_equal
from moec.ir.data import TensorData
from moec.ir.graph import Graph, Module, Node, Value
from moec.ir.text import parse_module, print_module
from moec.ops.registry import OPS
from moec.ops.verify import verify

PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def store_of(module: Module) -> dict[str, TensorData]:
    """The contents of every tensor of the module by key."""
    datas = [v for n in module.nodes() for v in n.attrs.values() if isinstance(v, TensorData)]
    return {d.key: d for d in datas}


@PROPERTY
@given(modules())
def test_verifies(module: Module) -> None:
    verify(module)


@PROPERTY
@given(modules(), st.integers(0, 9))
def test_evaluates_to_the_declared_types(module: Module, seed: int) -> None:
    outputs = run(module, inputs_of(module, seed))
    for name, value in zip(module.main.output_names, module.main.outputs, strict=True):
        assert outputs[name].dtype == value.type.dtype.carrier
        assert outputs[name].ndim == value.type.rank


@PROPERTY
@given(modules())
def test_reads_back_what_it_prints(module: Module) -> None:
    text = print_module(module)
    again = parse_module(text, "again.mir", store_of(module))
    assert modules_equal(again, module)
    assert print_module(again) == text
    verify(again)


@PROPERTY
@given(modules(max_steps=4))
def test_reads_back_without_its_side_file(module: Module) -> None:
    again = parse_module(print_module(module))
    assert modules_equal(again, module)
    assert print_module(again) == print_module(module)
    read = [v for n in again.nodes() for v in n.attrs.values() if isinstance(v, TensorData)]
    assert all(isinstance(d, UnreadData) or d.size <= 16 for d in read)


@PROPERTY
@given(modules(max_steps=5), st.data())
def test_any_change_of_the_text_is_read_or_refused(module: Module, data: st.DataObject) -> None:
    text = print_module(module)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(at, min(len(text), at + 6)))
        text = (
            text[:at]
            + data.draw(
                st.sampled_from(["", "%", "x", "[", "]", "(", "\n", "}", "{", ",", '"', "9", "-", "dense<", ":"])
            )
            + text[end:]
        )
    try:
        parse_module(text)
    except Refusal as refusal:
        assert all(p.where.line > 0 for p in refusal.problems)


@PROPERTY
@given(modules(max_steps=12), st.integers(0, 5))
def test_what_is_read_back_computes_the_same(module: Module, seed: int) -> None:
    inputs = inputs_of(module, seed)
    first, second = run(module, inputs), run(parse_module(print_module(module), "again.mir", store_of(module)), inputs)
    assert {n: a.tobytes() for n, a in first.items()} == {n: a.tobytes() for n, a in second.items()}


NOT_DRAWN = {"if", "loop", "scan", "opaque"}
NOT_DRAWN |= {
    n for n, d in OPS.items() if d.traits & {"collective", "ranked"} or d.place == "host" or d.host_operands == ("x",)
}
NOT_DRAWN |= {"read_start", "device_size", "sparse24", "dense24"}
NOT_DRAWN |= {"save", "seed", "after", "swap_out", "balance_loss", "attention_stats", "attention_grad"}
NOT_DRAWN |= {"attention_mask_grad", "apply_adamw"}
NOT_DRAWN |= {"gating_grad", "grouped_matmul_dw", "segment_sum", "swiglu_grad", "unpermute_grad"}
"""Ops whose meaning lies in functions or domains of their own, which the ONNX front end makes and tests; those of ranks
and of the host, and the forms of what they exchange, which tests/comm and tests/host hold against their formulas; and
those of training graphs, which tests/train holds against differences.
"""


def test_the_strategy_reaches_every_op() -> None:
    """A new op must be drawn too, or be named above with the reason."""
    reached: set[str] = set()

    @settings(max_examples=900, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(modules(max_steps=14))
    def collect(module: Module) -> None:
        reached.update(n.op for n in module.nodes())

    collect()
    assert set(OPS) - reached == NOT_DRAWN


def check_def_use(graph: Graph) -> None:
    """Every list of users is exactly what the operands say, and the list of nodes is linked both ways."""
    nodes = list(graph)
    assert len(nodes) == len(graph) and list(reversed(graph)) == nodes[::-1]
    expected: dict[Value, dict[Node, int]] = {v: {} for v in [*graph.inputs, *(r for n in nodes for r in n.results)]}
    for node in [*nodes, graph.ret]:
        assert node.graph is graph
        for v in node.operands:
            if v is not None:
                expected[v][node] = expected[v].get(node, 0) + 1
    assert all(v.uses == users for v, users in expected.items())


@PROPERTY
@given(modules(calls=False), st.data())
def test_edits_keep_the_def_use_lists_exact(module: Module, data: st.DataObject) -> None:
    graph = module.main
    for _ in range(data.draw(st.integers(1, 25))):
        nodes = list(graph)
        edit = data.draw(st.sampled_from(["insert", "erase", "move", "replace", "set", "outputs"]))
        values = [*graph.inputs, *(r for n in nodes for r in n.results)]
        a, b = data.draw(st.sampled_from(values)), data.draw(st.sampled_from(values))
        node = data.draw(st.sampled_from(nodes)) if nodes else None
        before = data.draw(st.sampled_from([*nodes, None, graph.ret]))
        if edit == "insert":
            graph.insert(Node("add", [a, b, None, a], {}, [a.type]), before)
        elif edit == "erase" and node is not None and not any(v.uses for v in node.results):
            graph.erase(node)
        elif edit == "move" and node is not None:
            graph.move(node, before)
        elif edit == "replace":
            a.replace_with(b)
            assert a is b or not a.uses
        elif edit == "set" and node is not None and node.operands:
            node.set_operand(data.draw(st.integers(0, len(node.operands) - 1)), data.draw(st.sampled_from([a, None])))
        elif edit == "outputs":
            graph.set_outputs([a, b, a], ["p", "q", "r"])
        check_def_use(graph)


@PROPERTY
@given(modules(calls=False))
def test_erasing_while_walking_visits_every_node(module: Module) -> None:
    graph = module.main
    graph.set_outputs([], [])
    expected = list(graph)[::-1]
    seen = []
    for node in reversed(graph):
        seen.append(node)
        graph.erase(node)
    assert seen == expected and len(graph) == 0
    check_def_use(graph)
