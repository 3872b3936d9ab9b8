"""Operators whose details are easily got wrong, against the onnx reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import agree, both, floats, imported, int64s, model, node

INT_MAX, INT_MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5)).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def unary(op: str, x: np.ndarray, extra: dict[str, Any] | None = None, opset: int = 21, **attrs: Any) -> None:
    """A node on x and constant operands, with static and with symbolic sizes."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    held = {k: v for k, v in (extra or {}).items() if v is not None}
    names = ["x", *(k if v is not None else "" for k, v in (extra or {}).items())]
    for dims in (x.shape, [f"d{i}" for i in range(x.ndim)]):
        agree(model([node(op, names, **attrs)], {"x": (kind, dims)}, initializers=held, opset=opset), {"x": x})


@pytest.mark.parametrize(
    "attrs", [{"alpha": 0.5}, {"beta": 2.0}, {"transA": 1, "transB": 1}, {"alpha": 2.0, "beta": 0.0}]
)
@pytest.mark.parametrize("bias", [(4,), (3, 1), ()])
def test_gemm(attrs: dict[str, Any], bias: tuple[int, ...]) -> None:
    a = RNG.standard_normal((5, 3) if attrs.get("transA") else (3, 5)).astype(np.float32)
    b = RNG.standard_normal((4, 5) if attrs.get("transB") else (5, 4)).astype(np.float32)
    c = RNG.standard_normal(bias).astype(np.float32)
    proto = model([node("Gemm", ["a", "b", "c"], **attrs)], {"a": floats(*a.shape)}, initializers={"b": b, "c": c})
    agree(proto, {"a": a})


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 4, 5)])
@pytest.mark.parametrize("other", [(5,), (5, 3), (2, 5, 3)])
def test_matmul_ranks(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in (shape, other))
    agree(model([node("MatMul", ["a", "b"])], {"a": floats(*shape), "b": floats(*other)}), {"a": a, "b": b})


@pytest.mark.parametrize(
    "starts,ends,axes,steps",
    [
        ((0,), (INT_MAX,), (1,), (2,)),
        ((-2,), (INT_MAX,), (-1,), None),
        ((1, 0), (3, -1), (0, 2), (1, 1)),
        ((-1,), (INT_MIN,), (1,), (-1,)),
        ((3,), (0,), (1,), (-2,)),
        ((3,), (1,), (2,), None),
        ((INT_MIN,), (2,), (0,), None),
        ((10,), (20,), (0,), None),
    ],
)
def test_slice(starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    extra = {"s": ints(*starts), "e": ints(*ends), "a": ints(*axes)}
    if steps is not None:
        extra["t"] = ints(*steps)
    names = ["x", *extra]
    agree(model([node("Slice", names)], {"x": floats(*X.shape)}, initializers=extra), {"x": X})


def test_slice_of_symbolic_sizes() -> None:
    for start, end in ((1, INT_MAX), (0, -1), (-2, INT_MAX), (0, 2)):
        unary("Slice", X, {"s": ints(start), "e": ints(end), "a": ints(1)})


@pytest.mark.parametrize("sizes,outputs", [(None, 2), (ints(1, 3), 2), (None, 3)])
def test_split(sizes: Any, outputs: int) -> None:
    names = [f"y{i}" for i in range(outputs)]
    attrs = {"num_outputs": outputs} if sizes is None else {}
    held = {} if sizes is None else {"s": sizes}
    proto = model([node("Split", ["x", *held], names, axis=1, **attrs)], {"x": floats(3, 4, 5)}, names, held)
    agree(proto, {"x": X})


def test_split_with_sizes_known_when_run() -> None:
    names = ["y0", "y1", "y2"]
    proto = model([node("Split", ["x", "s"], names, axis=0)], {"x": floats("n", 2), "s": int64s(3)}, names)
    agree(proto, {"x": np.arange(12, dtype=np.float32).reshape(6, 2), "s": ints(1, 0, 5)})


@pytest.mark.parametrize(
    "target,allowzero", [((-1, 5), 0), ((0, -1), 0), ((2, -1, 5), 0), ((12, 5), 1), ((0, 0, 5), 0)]
)
def test_reshape(target: tuple[int, ...], allowzero: int) -> None:
    agree(
        model(
            [node("Reshape", ["x", "s"], allowzero=allowzero)],
            {"x": floats(3, 4, 5)},
            initializers={"s": ints(*target)},
        ),
        {"x": X},
    )


def test_reshape_allowzero_makes_an_empty_tensor() -> None:
    proto = model([node("Reshape", ["x", "s"], allowzero=1)], {"x": floats(0, 3)}, initializers={"s": ints(3, 0)})
    agree(proto, {"x": np.zeros((0, 3), np.float32)})


@pytest.mark.parametrize(
    "op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"]
)
@pytest.mark.parametrize(
    "axes,attrs", [(ints(-1, 0), {"keepdims": 0}), (ints(), {}), (ints(), {"noop_with_empty_axes": 1}), (None, {})]
)
def test_reductions(op: str, axes: Any, attrs: dict[str, int]) -> None:
    unary(op, X, {} if axes is None else {"axes": axes}, **attrs)


def test_reduction_axes_attribute_of_old_opsets() -> None:
    unary("ReduceMean", X, opset=17, axes=[-2], keepdims=1)
    unary("ReduceSum", X, opset=11, axes=[1], keepdims=0)


@pytest.mark.parametrize("opset,attrs", [(21, {}), (21, {"axis": 1}), (11, {}), (11, {"axis": 0}), (11, {"axis": -1})])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_axis_of_old_and_new_opsets(op: str, opset: int, attrs: dict[str, Any]) -> None:
    proto = model([node(op, ["x"], **attrs)], {"x": floats(3, 4, 5)}, opset=opset)
    (ours,), _ = both(proto, {"x": X})
    axis = attrs.get("axis", -1 if opset >= 13 else 1)
    flat = X if opset >= 13 else X.reshape(int(np.prod(X.shape[: axis % 3])), -1)
    e = np.exp(flat - flat.max(axis if opset >= 13 else 1, keepdims=True))
    y = e / e.sum(axis if opset >= 13 else 1, keepdims=True)
    np.testing.assert_allclose(ours, (np.log(y) if op == "LogSoftmax" else y).reshape(X.shape), atol=1e-5)


@pytest.mark.parametrize("largest", [0, 1])
def test_u17_topk_ties_go_to_the_lower_index(largest: int) -> None:
    x = np.array([[1, 2, 2, 1, 2], [0, 0, 0, 0, 0]], np.float32)
    proto = model(
        [node("TopK", ["x", "k"], ["v", "i"], largest=largest)], {"x": floats(2, 5)}, ["v", "i"], {"k": ints(3)}
    )
    (_, indices), _ = both(proto, {"x": x})
    assert indices.tolist() == ([[1, 2, 4], [0, 1, 2]] if largest else [[0, 3, 1], [0, 1, 2]])


def test_u17_topk_of_unsigned_integers_does_not_wrap() -> None:
    x = np.array([0, 200, 0, 255], np.uint8)
    proto = model([node("TopK", ["x", "k"], ["v", "i"])], {"x": (TensorProto.UINT8, [4])}, ["v", "i"], {"k": ints(3)})
    (values, indices), _ = both(proto, {"x": x})
    assert values.tolist() == [255, 200, 0] and indices.tolist() == [3, 1, 0]


def test_integer_division_truncates_and_mod_has_the_divisors_sign() -> None:
    a, b = ints(7, -7, 7, -7), ints(2, 2, -2, -2)
    held = {"a": int64s(4), "b": int64s(4)}
    (quotient,), _ = both(model([node("Div", ["a", "b"])], held), {"a": a, "b": b})
    assert quotient.tolist() == [3, -3, -3, 3]
    agree(model([node("Mod", ["a", "b"])], held), {"a": a, "b": b})
    agree(model([node("Mod", ["a", "b"], fmod=1)], held), {"a": a, "b": b})


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("values", [(0, 1), (2, 5), (-1, 0)])
def test_one_hot(axis: int, values: tuple[int, int]) -> None:
    held: dict[str, Any] = {"d": np.array(4, np.int64), "v": np.array(values, np.float32)}
    proto = model([node("OneHot", ["x", "d", "v"], axis=axis)], {"x": int64s(5)}, initializers=held)
    agree(proto, {"x": ints(0, 3, -1, 2, 1)})


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters(reduction: str) -> None:
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    index, updates = np.array([[1, 0, 2], [3, 3, 0]]), np.arange(6, dtype=np.float32).reshape(2, 3)
    shapes = {"x": floats(4, 3), "i": int64s(2, 3), "u": floats(2, 3)}
    agree(
        model([node("ScatterElements", ["x", "i", "u"], reduction=reduction)], shapes),
        {"x": x, "i": index, "u": updates},
    )
    shapes["i"] = int64s(2, 1)
    proto = model([node("ScatterND", ["x", "i", "u"], reduction=reduction)], shapes)
    agree(proto, {"x": x, "i": ints(2, 0)[:, None], "u": updates})


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(exclusive: int, reverse: int) -> None:
    unary("CumSum", X, {"a": np.array(-2, np.int64)}, exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("low,high", [(None, 0.5), (-0.5, None), (-0.5, 0.5), (0.5, -0.5), (None, None)])
def test_clip_with_absent_bounds(low: float | None, high: float | None) -> None:
    extra = {"lo": None if low is None else np.float32(low), "hi": None if high is None else np.float32(high)}
    unary("Clip", X, {k: None if v is None else np.asarray(v) for k, v in extra.items()})


def test_where_broadcasts_three_ways() -> None:
    shapes = {"c": (TensorProto.BOOL, (3, 1)), "a": floats(4), "b": floats(2, 1, 1)}
    feeds = {"c": np.array([[True], [False], [True]]), "a": X[0, :, 0], "b": X[:2, :1, :1]}
    agree(model([node("Where", ["c", "a", "b"])], shapes), feeds)


def test_nonzero_is_row_major() -> None:
    x = np.array([[0, 1, 1], [1, 0, 1]], np.float32)
    agree(model([node("NonZero", ["x"])], {"x": floats("a", "b")}), {"x": x})


def test_u1_nonzero_count_is_a_bounded_symbol() -> None:
    module = imported(model([node("NonZero", ["x"])], {"x": floats(4, 2)}))
    assert module.symbols == {"nonzero0": (0, 8)}
    assert str(module.main.outputs[0].type) == "i64[2, nonzero0]"


@pytest.mark.parametrize(
    "attrs", [{"value_float": 1.5}, {"value_floats": [1.5, 2.0]}, {"value_int": 3}, {"value_ints": [3, 4]}]
)
def test_constant_forms(attrs: dict[str, Any]) -> None:
    dtype = TensorProto.FLOAT if "float" in next(iter(attrs)) else TensorProto.INT64
    proto = model([node("Constant", [], ["c"], **attrs), node("Add", ["x", "c"])], {"x": (dtype, (2,))})
    agree(proto, {"x": np.array([1, 2], helper.tensor_dtype_to_np_dtype(dtype))})


def test_constant_of_shape_with_symbolic_shape() -> None:
    fill = helper.make_tensor("v", TensorProto.FLOAT, [1], [2.5])
    nodes = [node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], value=fill)]
    agree(model(nodes, {"x": floats("a", "b")}), {"x": X[0]})


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_trilu_gather_tile_expand(k: int) -> None:
    unary("Trilu", X, {"k": np.array(k, np.int64)}, upper=0)
    unary("Gather", X, {"i": ints(-1, 0)}, axis=-2)
    unary("Tile", X, {"r": ints(1, 2, 1)})
    unary("Expand", X, {"s": ints(2, 1, 1, 1)})


def test_range_over_sizes_and_over_data() -> None:
    zero, one = np.array(0, np.int64), np.array(1, np.int64)
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=1),
        node("Squeeze", ["s"], ["n"]),
        node("Range", ["zero", "n", "one"], ["y"]),
        node("Range", ["zero", "m", "one"], ["z"]),
    ]
    proto = model(nodes, {"x": floats("a", 5), "m": int64s()}, ["y", "z"], {"zero": zero, "one": one})
    agree(proto, {"x": X[0], "m": np.array(6, np.int64)})


def test_cast_from_bfloat16() -> None:
    values = onnx.helper.make_tensor("w", TensorProto.BFLOAT16, [3], [1.5, -2.0, 3.25])
    proto = model([node("Cast", ["w"], ["c"], to=TensorProto.FLOAT), node("Add", ["x", "c"])], {"x": floats(3)})
    proto.graph.initializer.append(values)
    (ours,), _ = both(proto, {"x": np.zeros(3, np.float32)})
    assert ours.tolist() == [1.5, -2.0, 3.25]


def test_u6_reshape_from_concatenated_sizes_is_symbolic() -> None:
    """A shape made of Shape, Gather and Concat resolves, -1 included."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["batch"], axis=0),
        node("Unsqueeze", ["batch", "axis0"], ["b1"]),
        node("Concat", ["b1", "minus", "four"], ["target"], axis=0),
        node("Reshape", ["x", "target"]),
    ]
    held = {"zero": np.array(0, np.int64), "axis0": ints(0), "minus": ints(-1), "four": ints(4)}
    module = imported(model(nodes, {"x": floats("B", "S", 64)}, initializers=held))
    assert str(module.main.outputs[0].type) == "f32[B, 16*S, 4]"
    assert [n.op for n in module.main] == ["reshape"]


EINSUMS: dict[str, list[tuple[int, ...]]] = {
    "th,enh->etn": [(3, 4), (5, 2, 4)],
    "td,edf->tef": [(3, 4), (5, 4, 2)],
    "ted,te->td": [(3, 5, 4), (3, 5)],
    "te,ted->td": [(3, 5), (3, 5, 4)],
    "gsec,gsm->egcm": [(2, 3, 4, 5), (2, 3, 6)],
    "bqhd,bkhd->bhqk": [(2, 3, 4, 5), (2, 6, 4, 5)],
    "bhqk,bkhd->bqhd": [(2, 4, 3, 6), (2, 6, 4, 5)],
    "i,j->ij": [(3,), (4,)],
    "i,i->": [(3,), (3,)],
    "i,i": [(3,), (3,)],
    "ij,kl->il": [(3, 4), (5, 2)],
    "ij,jk": [(3, 4), (4, 2)],
    "ba,cb": [(3, 4), (2, 3)],
    "ij->ji": [(3, 4)],
    "ij->": [(3, 4)],
    "ij -> i": [(3, 4)],
    "ij": [(3, 4)],
    "te,edf,tf->td": [(3, 5), (5, 4, 2), (3, 2)],
    "abc,abc->abc": [(2, 3, 4), (2, 3, 4)],
    ",ij->ij": [(), (3, 4)],
}


@pytest.mark.parametrize("empty", [False, True], ids=["", "no rows"])
@pytest.mark.parametrize("equation", EINSUMS)
def test_einsum_is_products_sums_and_transposes(equation: str, empty: bool) -> None:
    """Every size is a symbol of its label; the first may be 0 when the model runs."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    size = {c: n for t, s in zip(terms, EINSUMS[equation], strict=True) for c, n in zip(t, s, strict=True)}
    if empty and size:
        size[next(iter(size))] = 0
    names = [f"x{i}" for i in range(len(terms))]
    feeds = {n: RNG.standard_normal([size[c] for c in t]).astype(np.float32) for n, t in zip(names, terms, strict=True)}
    for whole in (True, False):
        dims = {n: [size[c] if whole else f"d{c}" for c in t] for n, t in zip(names, terms, strict=True)}
        proto = model([node("Einsum", names, equation=equation)], {n: floats(*d) for n, d in dims.items()}, opset=12)
        agree(proto, feeds, atol=1e-5)
        assert not [n for n in imported(proto).main if n.op == "opaque"]


@pytest.mark.parametrize("equation", ["ii->i", "...i->i", "ij,kj->ik"], ids=["diagonal", "ellipsis", "size 1"])
def test_einsum_without_a_form_is_kept(equation: str) -> None:
    shapes = {"ij,kj->ik": [(3, 4), (2, 1)]}.get(equation, [(3, 3)])
    names = [f"x{i}" for i in range(len(shapes))]
    ins = {n: floats(*s) for n, s in zip(names, shapes, strict=True)}
    proto = model([node("Einsum", names, equation=equation)], ins, opset=12)
    agree(proto, {n: RNG.standard_normal(s).astype(np.float32) for n, s in zip(names, shapes, strict=True)})
    assert [n.op for n in imported(proto).main] == ["opaque"]
