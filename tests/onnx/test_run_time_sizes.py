"""Sizes that only the run tells: elementwise operators broadcast them as numpy does, 1 included."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import Dims, agree, floats, imported, model, node

from moec.diagnostics import Refusal
from moec.eval import run
from moec.frontend.onnx_export import to_onnx

RNG = np.random.default_rng(0)
KEEP = (TensorProto.BOOL, (5,))
ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum")
COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
LOGIC = ("And", "Or", "Xor")


def kept(count: int) -> np.ndarray:
    """A mask of five that keeps the first ``count``."""
    return np.arange(5) < count


def met(nodes: list[onnx.NodeProto], known: Dims, name: str = "keep") -> onnx.ModelProto:
    """A model of ``nodes`` on ``n`` [rows that the mask ``keep`` tells, 3] and ``known``."""
    compress = node("Compress", ["x", name], ["n"], axis=0)
    inputs = {"x": floats(5, 3), name: KEEP, "known": floats(*known)}
    return model([compress, *nodes], inputs)


def fed(count: int, rows: int) -> dict[str, np.ndarray]:
    x, known = (RNG.uniform(0.5, 2.0, (n, 3)).astype(np.float32) for n in (5, rows))
    return {"x": x, "keep": kept(count), "known": known}


def operator(op: str, names: tuple[str, str]) -> list[onnx.NodeProto]:
    """The operator on the two, in bools where it wants them."""
    if op not in LOGIC:
        return [node(op, names, **({"fmod": 1} if op == "Mod" else {}))]
    casts = [node("Cast", [n], [f"{n}_bool"], to=TensorProto.BOOL) for n in names]
    return [*casts, node(op, [f"{n}_bool" for n in names])]


@pytest.mark.parametrize("op", [*ARITHMETIC, *COMPARISONS, *LOGIC, "Mod"])
@pytest.mark.parametrize("names", [("n", "known"), ("known", "n")])
def test_a_size_that_turns_out_to_be_one_is_broadcast(op: str, names: tuple[str, str]) -> None:
    for known in ((4, 3), ("rows", 3)):
        proto = met(operator(op, names), known)
        for count in (1, 4):
            agree(proto, fed(count, 4))


def test_mean_of_a_size_that_turns_out_to_be_one() -> None:
    """Apart, as the reference evaluator adds into its first operand."""
    for names in (("n", "known"), ("known", "n")):
        feeds = fed(1, 4)
        y = run(imported(met(operator("Mean", names), (4, 3))), feeds)["y"]
        np.testing.assert_allclose(y, (feeds["x"][:1] + feeds["known"]) / 2, rtol=1e-6)


@pytest.mark.parametrize("order", [("c", "n", "known"), ("c", "known", "n"), ("c_n", "known", "known")])
def test_where(order: tuple[str, str, str]) -> None:
    nodes = [
        node("Greater", ["known", "one"], ["c"]),
        node("Greater", ["n", "one"], ["c_n"]),
        node("Where", order),
    ]
    for rows in (4, "rows"):
        proto = met(nodes, (rows, 3))
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1, np.float32), "one"))
        for count in (1, 4):
            agree(proto, fed(count, 4))


def test_two_sizes_that_the_run_tells() -> None:
    nodes = [node("Compress", ["x", "keep"], ["n"], axis=0), node("Compress", ["x", "other"], ["m"], axis=0)]
    inputs = {"x": floats(5, 3), "keep": KEEP, "other": KEEP}
    proto = model([*nodes, node("Add", ["n", "m"])], inputs)
    x = RNG.standard_normal((5, 3)).astype(np.float32)
    for a, b in ((3, 3), (1, 4), (4, 1), (1, 1), (0, 0)):
        agree(proto, {"x": x, "keep": kept(a), "other": kept(b)})
    with pytest.raises(Refusal, match="cannot evaluate add"):
        run(imported(proto), {"x": x, "keep": kept(2), "other": kept(3)})


def test_expand() -> None:
    """To numbers, to a named size, and to one that the run tells, from each of them."""
    fixed = model(
        [node("Compress", ["x", "keep"], ["n"], axis=0), node("Expand", ["n", "shape"])],
        {"x": floats(5, 3), "keep": KEEP},
        initializers={"shape": np.array([2, 4, 3])},
    )
    of = [node("Shape", ["known"], ["shape"]), node("Expand", ["n", "shape"])]
    to = [node("Shape", ["n"], ["shape"]), node("Expand", ["known", "shape"])]
    for count in (1, 4):
        feeds = fed(count, 4)
        agree(fixed, {n: feeds[n] for n in ("x", "keep")})
        for nodes in (of, to):
            agree(met(nodes, ("rows", 3)), feeds)
    agree(met(to, (1, 3)), fed(4, 1))


def test_expand_of_two_named_sizes() -> None:
    nodes = [node("Shape", ["b"], ["shape"]), node("Expand", ["a", "shape"])]
    proto = model(nodes, {"a": floats("n", 3), "b": floats("m", 3)})
    for n, m in ((4, 4), (1, 4), (4, 1)):
        agree(proto, {"a": RNG.standard_normal((n, 3)).astype(np.float32), "b": np.zeros((m, 3), np.float32)})


def test_sizes_that_do_not_fit_are_refused_when_it_runs() -> None:
    for nodes in (operator("Add", ("n", "known")), [node("Shape", ["known"], ["s"]), node("Expand", ["n", "s"])]):
        with pytest.raises(Refusal, match="cannot evaluate expand"):
            run(imported(met(nodes, (4, 3))), fed(3, 4))


def test_a_branch_that_decides_whether_a_mask_has_one_row() -> None:
    """As a mask of one query row or of all of them meets scores."""

    def branch(name: str, rows: int) -> onnx.GraphProto:
        made = helper.make_tensor(name, TensorProto.FLOAT, (rows, 3), np.arange(rows * 3, dtype=np.float32))
        constant = helper.make_node("Constant", [], [name], value=made)
        return helper.make_graph([constant], name, [], [onnx.ValueInfoProto(name=name)])

    nodes = [
        node("If", ["c"], ["mask"], then_branch=branch("one", 1), else_branch=branch("all", 4)),
        node("Add", ["scores", "mask"]),
    ]
    proto = model(nodes, {"c": (TensorProto.BOOL, ()), "scores": floats(4, 3)})
    for chosen in (True, False):
        agree(proto, {"c": np.array(chosen), "scores": RNG.standard_normal((4, 3)).astype(np.float32)})


def test_it_is_written_back() -> None:
    proto = met(operator("Add", ("n", "known")), ("rows", 3))
    feeds = fed(1, 4)
    again = to_onnx(imported(proto))
    agree(again, feeds)
    np.testing.assert_array_equal(run(imported(again), feeds)["y"], feeds["x"][:1] + feeds["known"])
