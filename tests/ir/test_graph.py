"""The graph's own refusals, the networkx view, structural comparison, and types; edits are under properties."""

from __future__ import annotations

import gc

import networkx as nx
import numpy as np
import pytest

from moec.ir.bulk import collection_paused
from moec.ir.compare import modules_equal
from moec.ir.graph import NOWHERE, Graph, Module, Node, Origin, Source, merged_origin
from moec.ir.symbol import sym
from moec.ir.text import parse_module
from moec.ir.types import BY_ONNX, DTYPES, F32, I64, TensorType, dtype, dtype_of
from moec.ir.view import to_networkx

VECTOR = TensorType(F32, (4,))


def _diamond() -> Graph:
    graph = Graph("main")
    x = graph.add_input("x", VECTOR)
    a = graph.append("silu", [x], {}, [VECTOR]).result
    b = graph.append("relu", [x], {}, [VECTOR]).result
    graph.set_outputs([graph.append("add", [a, b, None], {}, [VECTOR]).result], ["y"])
    return graph


def test_what_the_graph_refuses() -> None:
    graph = _diamond()
    silu, relu, add = graph
    with pytest.raises(ValueError, match="still has users"):
        graph.erase(silu)
    with pytest.raises(ValueError, match="already stands in a graph"):
        graph.insert(relu, None)
    with pytest.raises(ValueError, match="does not stand in graph other"):
        Graph("other").move(add, None)
    with pytest.raises(ValueError, match="2 outputs but 1 names"):
        graph.set_outputs([silu.result, relu.result], ["y"])
    with pytest.raises(ValueError, match="has no operand 2"):
        add.operand(2)
    with pytest.raises(ValueError, match="has no operand 7"):
        add.operand(7)
    module = Module()
    module.add(graph)
    with pytest.raises(ValueError, match="'main' exists already"):
        module.add(Graph("main"))
    with pytest.raises(KeyError):
        _ = Module().main


def test_walking_is_safe_while_the_node_at_hand_goes_or_grows() -> None:
    graph = _diamond()
    graph.set_outputs([], [])
    seen = []
    for node in reversed(graph):
        seen.append(node.op)
        graph.insert(Node("neg", [graph.inputs[0]], {}, [VECTOR]), None)
        graph.erase(node)
    assert seen == ["add", "relu", "silu"]
    assert [n.op for n in graph] == ["neg"] * 3


def test_moving_before_the_return_or_itself() -> None:
    graph = _diamond()
    silu, relu, add = graph
    graph.move(silu, graph.ret)
    assert list(graph) == [relu, add, silu]
    graph.move(silu, silu)
    graph.move(silu, relu)
    assert list(graph) == [silu, relu, add] and list(reversed(graph)) == [add, relu, silu]


def test_provenance_keeps_every_source_once_in_order() -> None:
    first, second = Source("m", 1, "a"), Source("m", 2, "b")
    nodes = [Node("x", [], {}, [], Origin((first, second), ("r",))), Node("x", [], {}, [], Origin((first,)))]
    assert merged_origin(nodes, "s") == Origin((first, second), ("r", "s"))
    assert str(NOWHERE) == "" and str(merged_origin(nodes, "s")) == "m:1 a; m:2 b by r, s"


def test_the_view_has_nodes_inputs_and_edges_in_order() -> None:
    graph = _diamond()
    view = to_networkx(graph)
    silu, relu, add = graph
    assert list(view.nodes) == [graph.inputs[0], silu, relu, add, graph.ret]
    assert [(d["operand"], d["value"]) for _, _, d in view.in_edges(add, data=True)] == [
        (0, silu.result),
        (1, relu.result),
    ]
    assert nx.is_directed_acyclic_graph(view)
    assert list(nx.topological_sort(view)) == [graph.inputs[0], silu, relu, add, graph.ret]


TEXT = """symbol T in [1, 4]
func main(%x: f32[T]) -> (y: f32[T]) {
  %a = softmax(%x) {axis = 0} : f32[T]
  %b = add(%a, %x) : f32[T]
  return %b
}
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("%a", "%other", True),
        ("symbol T in [1, 4]", "symbol T in [1, 5]", False),
        ("axis = 0", "axis = 1", False),
        ("axis = 0", "axis = 0.0", False),
        ("axis = 0", "axis = false", False),
        ("add(%a, %x)", "add(%x, %a)", False),
        ("add(", "sub(", False),
        ("return %b", "return %a", False),
        ("main", "other", False),
        ("(y:", "(z:", False),
        ("[T]", "[3]", False),
    ],
)
def test_comparison_sees_everything_but_names(old: str, new: str, same: bool) -> None:
    assert modules_equal(parse_module(TEXT), parse_module(TEXT.replace(old, new))) is same


def test_types_are_values() -> None:
    t = TensorType(F32, (sym("T") * 2, 3))
    assert t == TensorType(F32, (sym("T") + sym("T"), 3)) and hash(t) == hash(TensorType(F32, (2 * sym("T"), 3)))
    assert str(t) == "f32[2*T, 3]" and t.rank == 2 and t.numel() == 6 * sym("T")
    assert t.with_dtype(I64) != t and str(t.with_shape(None)) == "f32[*]"
    with pytest.raises(ValueError, match="rank of f32"):
        _ = t.with_shape(None).rank


def test_every_dtype_has_a_carrier_and_an_onnx_number() -> None:
    for name, d in DTYPES.items():
        assert dtype(name) is d
        if d.kind != "opaque":
            assert dtype_of(np.zeros(1, d.carrier)) is d and BY_ONNX[d.onnx] is d
            assert d.carrier.itemsize == d.bytes
    with pytest.raises(ValueError, match=r"unknown dtype 'fp32'; did you mean 'f32'\?"):
        dtype("fp32")
    with pytest.raises(ValueError, match="no dtype for numpy"):
        dtype_of(np.zeros(1, "U3"))


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_as_it_was_after_a_pause(on: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        with pytest.raises(ZeroDivisionError), collection_paused():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() is on
    finally:
        (gc.enable if was else gc.disable)()
