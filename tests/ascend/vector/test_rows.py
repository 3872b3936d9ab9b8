"""The row kernel on the CPU model: elementwise ops, dtypes, broadcasts, reductions, norms, fused regions, any width."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_layers import NORMS, fused
from vector_run import CARRIER, ORDERS, Layer, numbers, ulps

UNARY = {
    "neg": 0.0,
    "abs": 0.0,
    "exp": 1.0,
    "log": 1.0,
    "sqrt": 0.51,
    "rsqrt": 2.0,
    "reciprocal": 0.51,
    "tanh": 3.0,
    "erf": 6.0,
    "sigmoid": 3.0,
    "silu": 3.0,
    "relu": 0.0,
    "softplus": 3.0,
    "floor": 0.0,
    "ceil": 0.0,
    "round": 0.0,
    "sign": 0.0,
}
"""Ops with the ulps of f32 that they may be off the f64 value (of the CPU model, whose steps are correctly rounded)."""


def special(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    spread = np.concatenate([10.0 ** rng.uniform(-8, 4, 700), -(10.0 ** rng.uniform(-8, 4, 700))])
    ends = [0, -0.0, 1, -1, 0.5, 1.5, 2.5, -0.5, 88.5, -88.5, 104, -104, np.inf, -np.inf]
    return np.concatenate([rng.standard_normal(2000) * 3, rng.uniform(-100, 100, 1000), spread, ends]).astype(
        CARRIER[dtype]
    )


GROUPS = [list(UNARY)[i : i + 6] for i in range(0, len(UNARY), 6)]


@pytest.mark.parametrize(
    ("ops", "dtype"),
    [*((g, "f32") for g in GROUPS), (GROUPS[1], "bf16")],
    ids=lambda p: p if isinstance(p, str) else p[0],
)
def test_unary(tmp_path: Path, ops: list[str], dtype: str) -> None:
    kind = f"{dtype}[T]"
    made = "; ".join(f"{op}: {kind}" for op in ops)
    lines = [f"%{op} = {op}(%x) : {kind}" for op in ops]
    layer = Layer(fused("unary", f"%x: {kind}", made, lines, ", ".join(f"%{op}" for op in ops)), tmp_path)
    for x in (special(dtype), special(dtype)[:1], special(dtype)[:0], special(dtype)[-14:]):
        got, exact = layer.run({"x": x}), layer.reference({"x": x}, fp64=True)
        for op in ops:
            g, e = got[op].astype(np.float64), exact[op]
            np.testing.assert_array_equal(
                np.isnan(g), np.isnan(e) & ~((op == "silu") & (x == -np.inf)) | np.isnan(g) & np.isnan(e)
            )
            finite = np.isfinite(e) & (np.abs(e) < 3e38) & np.isfinite(g)
            allowed = UNARY[op] if dtype == "f32" else 0.51 + UNARY[op] / 2**16
            assert ulps(got[op][finite], e[finite], dtype, 1e-30) <= allowed, op
            assert (np.abs(e[~finite & ~np.isnan(e)]) > 3e38).all()


def test_gelu_both_ways(tmp_path: Path) -> None:
    kind = "f32[T]"
    lines = [f'%{n} = gelu(%x) {{approximate = "{n}"}} : {kind}' for n in ("none", "tanh")]
    layer = Layer(
        fused("gelus", f"%x: {kind}", f"none: {kind}; tanh: {kind}", lines, "%none, %tanh").replace("%none", "%exact"),
        tmp_path,
    )
    x = special("f32")
    x = x[np.isfinite(x)]
    got, exact = layer.run({"x": x}), layer.reference({"x": x}, fp64=True)
    bound = 2e-7 * np.maximum(1, np.abs(x))
    assert (np.abs(got["none"] - exact["none"]) <= bound).all()
    assert (np.abs(got["tanh"] - exact["tanh"]) <= bound).all()


def test_binary_compare_and_select(tmp_path: Path) -> None:
    kind, flag = "f32[T, 7]", "bool[T, 7]"
    ops = ("add", "sub", "mul", "div", "minimum", "maximum")
    lines = [f"%{op} = {op}(%x, %y) : {kind}" for op in ops]
    lines += [f"%{op} = {op}(%x, %y) : {flag}" for op in ("eq", "ne", "lt", "le", "gt", "ge")]
    lines += [f"%both = and(%lt, %ne) : {flag}", f"%one = or(%both, %m) : {flag}", f"%not = not(%one) : {flag}"]
    lines += [f"%sel = select(%not, %x, %y) : {kind}", f"%sum = select(%le, %add, %mul) : {kind}"]
    lines += [f"%ends = select(%ge, %div, %sub) : {kind}", f"%least = minimum(%minimum, %maximum) : {kind}"]
    made = f"sel: {kind}; sum: {kind}; ends: {kind}; least: {kind}; not: {flag}; eq: {flag}; gt: {flag}"
    returned = "%sel, %sum, %ends, %least, %not, %eq, %gt"
    layer = Layer(fused("binary", f"%x: {kind}, %y: {kind}, %m: {flag}", made, lines, returned), tmp_path)
    rng = np.random.default_rng(1)
    for n in (0, 1, 9, 700):
        arrays = {"x": np.round(numbers(rng, (n, 7), "f32", 2)), "y": np.round(numbers(rng, (n, 7), "f32", 2)) + 0.0}
        arrays["m"] = rng.random((n, 7)) < 0.3
        got, want = layer.run(arrays), layer.reference(arrays)
        for name in want:
            np.testing.assert_array_equal(got[name].view(want[name].dtype), want[name], name)


def test_integers(tmp_path: Path) -> None:
    text = """
symbol T in [0, 100000]
func main(%a: i32[T], %b: i32[T], %x: f32[T]) -> (s: i32[T], less: bool[T], f: f32[T], i: i32[T], big: i32[T]) {
  %s = add(%a, %b) : i32[T]
  %less = lt(%a, %b) : bool[T]
  %f = cast(%a) {to = !f32} : f32[T]
  %i = cast(%x) {to = !i32} : i32[T]
  %big = maximum(%a, %b) : i32[T]
  return %s, %less, %f, %i, %big
}
"""
    layer = Layer(text, tmp_path)
    rng = np.random.default_rng(2)
    for n in (0, 1, 300):
        arrays = {name: rng.integers(-(10**8), 10**8, n).astype(np.int32) for name in "ab"}
        arrays["x"] = numbers(rng, (n,), "f32", 1000)
        got, want = layer.run(arrays), layer.reference(arrays)
        for name in want:
            np.testing.assert_array_equal(got[name].view(want[name].dtype), want[name], name)


SHAPES = [(0, 7), (1, 1), (3, 5), (5, 7), (130, 126), (9, 127), (4, 128), (70, 64), (2, 3000)]


@pytest.mark.parametrize(
    "width",
    [
        "C",
        pytest.param(5, marks=pytest.mark.slow),
        126,
        pytest.param(3000, marks=pytest.mark.slow),
        pytest.param(20001, marks=pytest.mark.slow),
    ],
)
def test_rows_of_any_width(tmp_path: Path, width: int | str) -> None:
    """Means, variances, maxima, a weight row and a column: with the width known, and with every size at run time."""
    kinds = "%x: f32[T, C], %w: f32[C], %b: f32[T, 1]"
    text = fused("norms", kinds, "g: f32[T, C]; d: f32[T, 1]", NORMS, "%g, %d")
    if width != "C":
        text = text.replace("symbol C in [1, 100000]\n", "").replace("C", str(width))
    layer = Layer(text, tmp_path)
    rng = np.random.default_rng(5)
    shapes = [s for s in SHAPES if width in ("C", s[1])]
    shapes += [(rows, int(width)) for rows in (0, 1, 7)] if width != "C" else [(2, 40000), (1, 20001), (3, 9000)]
    for i, (rows, cols) in enumerate(shapes):
        arrays = {
            "x": numbers(rng, (rows, cols), "f32") + 1,
            "w": numbers(rng, (cols,), "f32"),
            "b": numbers(rng, (rows, 1), "f32"),
        }
        got, exact = layer.run(arrays, MOEC_CPU_ORDER=ORDERS[i % 3]), layer.reference(arrays, fp64=True)
        np.testing.assert_array_equal(got["d"], layer.reference(arrays)["d"])
        np.testing.assert_allclose(got["g"], exact["g"], rtol=1e-5, atol=1e-5)


ROW_OPS = {
    "softmax": ("%x", "axis = 1"),
    "log_softmax": ("%x", "axis = 1"),
    "rms_norm": ("%x, %w", "eps = 1e-06"),
    "layer_norm": ("%x, %w, %b", "eps = 1e-05, axis = 1"),
}


@pytest.mark.parametrize(
    ("dtype", "width", "ops"),
    [("bf16", 126, list(ROW_OPS)), pytest.param("f32", 33, ["softmax", "layer_norm"], marks=pytest.mark.slow)],
    ids=["bf16", "f32"],
)
def test_softmax_and_norms_of_their_own(tmp_path: Path, dtype: str, width: int, ops: list[str]) -> None:
    kind = f"{dtype}[T, {width}]"
    nodes = "\n".join(f"  %{op} = {op}({ROW_OPS[op][0]}) {{{ROW_OPS[op][1]}}} : {kind}" for op in ops)
    text = f"""
symbol T in [0, 100000]
func main(%x: {kind}, %w: {dtype}[{width}], %b: {dtype}[{width}]) -> ({", ".join(f"{op}: {kind}" for op in ops)}) {{
{nodes}
  return {", ".join(f"%{op}" for op in ops)}
}}
"""
    layer = Layer(text, tmp_path)
    rng = np.random.default_rng(6)
    for rows in (0, 1, 66):
        arrays = {"x": numbers(rng, (rows, width), dtype, 2)}
        arrays |= {name: numbers(rng, (width,), dtype) for name in ("w", "b")}
        got, exact = layer.run(arrays), layer.reference(arrays, fp64=True)
        for op in ops:
            assert ulps(got[op], exact[op], dtype, 2.0**-2) <= {"f32": 16.0, "bf16": 0.51}[dtype], op


def test_a_fused_bf16_region_rounds_where_its_nodes_do(tmp_path: Path) -> None:
    kind = "bf16[T, 40]"
    lines = [
        f"%a = mul(%x, %y) : {kind}",
        f"%b = add(%a, %x) : {kind}",
        f"%c = sub(%b, %y) : {kind}",
        f"%d = mul(%c, %a) : {kind}",
    ]
    layer = Layer(fused("chain", f"%x: {kind}, %y: {kind}", f"c: {kind}; d: {kind}", lines, "%c, %d"), tmp_path)
    rng = np.random.default_rng(7)
    arrays = {"x": numbers(rng, (50, 40), "bf16"), "y": numbers(rng, (50, 40), "bf16")}
    got, want = layer.run(arrays), layer.reference(arrays)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])


def test_rows_that_repeat_over_leading_dimensions(tmp_path: Path) -> None:
    text = """
symbol B in [1, 100]
symbol S in [0, 1000]
func main(%x: f32[B, 3, S, 10], %c: f32[S, 10], %m: f32[B, 1, S, 10]) -> (y: f32[B, 3, S, 10]) {
  %0 = mul(%x, %c) : f32[B, 3, S, 10]
  %1 = add(%0, %m) : f32[B, 3, S, 10]
  return %1
}
"""
    layer = Layer(text, tmp_path)
    rng = np.random.default_rng(8)
    for b, s in ((1, 1), (2, 5), (3, 0), (2, 40)):
        arrays = {
            "x": numbers(rng, (b, 3, s, 10), "f32"),
            "c": numbers(rng, (s, 10), "f32"),
            "m": numbers(rng, (b, 1, s, 10), "f32"),
        }
        got, want = layer.run(arrays), layer.reference(arrays)
        np.testing.assert_array_equal(got["y"], want["y"])


def test_one_number_for_all(tmp_path: Path) -> None:
    """A scalar that lives in device memory."""
    lines = ["%a = mul(%x, %s) : bf16[T]", "%b = sub(%a, %s) : bf16[T]", "%c = div(%s, %b) : bf16[T]"]
    layer = Layer(fused("scaled", "%x: bf16[T], %s: bf16[1]", "c: bf16[T]", lines, "%c"), tmp_path)
    rng = np.random.default_rng(9)
    for n in (0, 1, 1000):
        arrays = {"x": numbers(rng, (n,), "bf16"), "s": np.array([1.25], CARRIER["bf16"])}
        np.testing.assert_array_equal(layer.run(arrays)["c"], layer.reference(arrays)["c"])
