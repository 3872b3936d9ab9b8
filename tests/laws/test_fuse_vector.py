"""fuse-vector on random graphs: values kept, bodies within the contract, groups convex, nothing fusable left over."""

from __future__ import annotations

import numpy as np
import pytest

from moec import eval as reference
from moec.ir.graph import Graph, Module, Value
from moec.ir.symbol import sym
from moec.ir.text import parse_module, print_module
from moec.ir.types import BF16, F32, TensorType
from moec.ops.build import Builder
from moec.ops.rowspace import ELEMENTWISE, REDUCTIONS, common_shape, form, full_shape, may_fuse, rows_cols
from moec.passes.base import PassManager

T, D = sym("T"), 8


def random_module(seed: int, size: int = 25) -> Module:
    """A graph of elementwise ops, reductions, broadcasts, casts and products over a few shapes and two dtypes."""
    rng = np.random.default_rng(seed)
    module = Module()
    module.symbols["T"] = (1, 64)
    g = module.add(Graph("main"))
    shapes = [(T, D), (T, 1), (D,), (T, D), (D, D)]
    values: list[Value] = [g.add_input(f"x{i}", TensorType(F32, s)) for i, s in enumerate(shapes)]
    b = Builder(g)

    def pick(shape: tuple | None = None, dtype: object = None) -> Value:
        fitting = [v for v in values if shape in (None, v.type.shape) and dtype in (None, v.type.dtype)]
        return fitting[int(rng.integers(len(fitting)))]

    for _ in range(size):
        kind = int(rng.integers(9))
        a = pick()
        if kind <= 2:
            other = pick(dtype=a.type.dtype)
            if common_shape([a.type.dims, other.type.dims]) is not None:
                values.append([b.add, b.mul, b.maximum][kind](a, other))
        elif kind == 3:
            values.append(b.tanh(a))
        elif kind == 4:
            values.append(b.reduce_mean(a, axes=(a.type.rank - 1,), keepdims=True))
        elif kind == 5:
            values.append(b.cast(a, to=BF16 if a.type.dtype is F32 else F32))
        elif kind == 6 and a.type.shape == (T, D):
            values.append(b.softmax(a, axis=1))
        elif kind == 7:
            left = pick((T, D), F32)
            values.append(b.tanh(b.matmul(left, values[4])))
        elif kind == 8 and a.type.shape in ((T, 1), (D,)):
            values.append(b.expand(a, shape=(T, D)))
    outputs = [values[-1], *(pick() for _ in range(2))]
    g.set_outputs(outputs, ["a", "b", "c"])
    return module


def inputs(module: Module, tokens: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        v.name: rng.normal(size=[d if isinstance(d, int) else tokens for d in v.type.dims]).astype(v.type.dtype.carrier)
        for v in module.main.inputs
    }


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("spec", ["fuse-vector", "fuse-vector{max_inputs=3,max_outputs=1,max_nodes=4}"])
def test_values_are_kept_and_bodies_keep_the_contract(seed: int, spec: str) -> None:
    before, after = random_module(seed), random_module(seed)
    steps = PassManager.parse(f"{spec},dce").run(after)
    limits = steps[0].made_by
    for tokens in (1, 5):
        given = inputs(before, tokens)
        old, new = (reference.run(m, given) for m in (before, after))
        old64, new64 = (reference.run(m, given, fp64=True) for m in (before, after))
        for name in old:
            assert np.allclose(old64[name], new64[name], rtol=1e-9, atol=1e-9)
            tolerance = 2e-5 if old[name].dtype == np.float32 else 0.05
            assert np.allclose(old[name].astype(float), new[name].astype(float), rtol=tolerance, atol=tolerance)
    for name, body in after.functions.items():
        if name == "main":
            assert not [n.op for n in body if n.op != "expand" and may_fuse(n)], "left unfused"
            continue
        full = full_shape(body)
        assert rows_cols(full)[1] == full[-1]
        for node in body:
            assert node.op in (*ELEMENTWISE, *REDUCTIONS, "cast", "expand", "constant")
            assert all(form(v.type.dims, full) for v in node.results)
        assert len([n for n in body if n.op != "constant"]) <= limits.max_nodes
        if len([n for n in body if n.op != "constant"]) > 1:
            assert len(body.inputs) <= limits.max_inputs and len(body.outputs) <= limits.max_outputs
    again = print_module(after)
    PassManager.parse(f"{spec},dce").run(after)
    assert print_module(after) == again
    assert print_module(parse_module(again)) == again


def test_two_groups_that_need_one_another_are_not_contracted_into_a_cycle() -> None:
    """a1 feeds b1 and b2 feeds a2: both groups are convex, but as two kernels neither could run first."""
    text = """
symbol T in [1, 64]

func main(%p: f32[T, 8], %q: f32[T, 4], %m: f32[8, 4], %n: f32[4, 8]) -> (y: f32[T, 8], z: f32[T, 4]) {
  %a1 = exp(%p) : f32[T, 8]
  %b2 = exp(%q) : f32[T, 4]
  %ab = matmul(%a1, %m) {transpose_a = false, transpose_b = false, to = none} : f32[T, 4]
  %ba = matmul(%b2, %n) {transpose_a = false, transpose_b = false, to = none} : f32[T, 8]
  %a2 = add(%ba, %p) : f32[T, 8]
  %b1 = add(%ab, %q) : f32[T, 4]
  return %a2, %b1
}
"""
    module = parse_module(text)
    PassManager.parse("fuse-vector").run(module)
    assert [n.op for n in module.main].count("fused") == 4


def test_a_product_beside_a_chain_does_not_keep_it_apart() -> None:
    """The sigmoid can wait for the second product, which depends on nothing of its group."""
    text = """
symbol T in [1, 64]

func main(%x: f32[T, 8], %m: f32[8, 8]) -> (y: f32[T, 8]) {
  %0 = sigmoid(%x) : f32[T, 8]
  %1 = matmul(%x, %m) {transpose_a = false, transpose_b = false, to = none} : f32[T, 8]
  %2 = matmul(%1, %m) {transpose_a = false, transpose_b = false, to = none} : f32[T, 8]
  %3 = mul(%0, %2) : f32[T, 8]
  return %3
}
"""
    module = parse_module(text)
    PassManager.parse("fuse-vector").run(module)
    assert [n.op for n in module.main] == ["matmul", "matmul", "fused"]


def test_a_value_that_is_read_outside_becomes_a_result() -> None:
    text = """
func main(%x: f32[4, 8], %m: f32[8, 8]) -> (y: f32[4, 8], z: f32[4, 8]) {
  %0 = exp(%x) : f32[4, 8]
  %1 = neg(%0) : f32[4, 8]
  %2 = tanh(%1) : f32[4, 8]
  %3 = matmul(%1, %m) {transpose_a = false, transpose_b = false, to = none} : f32[4, 8]
  return %2, %3
}
"""
    module = parse_module(text)
    PassManager.parse("fuse-vector").run(module)
    assert len(module.functions["vec_exp_neg_tanh"].outputs) == 2


@pytest.mark.parametrize(
    ("shape", "full", "expected"),
    [
        ((T, D), (T, D), "full"),
        ((T, 1), (T, D), "column"),
        ((D,), (T, D), "row"),
        ((1, D), (T, D), "row"),
        ((), (T, D), "scalar"),
        ((1, 1), (T, D), "scalar"),
        ((T,), (T, D), None),
        ((1, T, D), (2, T, D), None),
        ((2, T, 1), (2, T, D), "column"),
        ((T, 1), (T, 1), "full"),
        ((2, 1, 1), (2, T, D), None),
        ((T, 1), (2, T, D), None),
    ],
)
def test_forms(shape: tuple, full: tuple, expected: str | None) -> None:
    assert form(shape, full) == expected


def test_work_is_linear() -> None:
    """Twice the layers, twice the kernels, and equal bodies stay one function."""
    made = []
    for n in (20, 40):
        lines, last = [], "%x"
        for i in range(n):
            lines += [
                f"  %m{i} = matmul({last}, %w) {{transpose_a = false, transpose_b = false, to = none}} : f32[4, 8]",
                f"  %e{i} = exp(%m{i}) : f32[4, 8]",
                f"  %a{i} = add(%e{i}, {last}) : f32[4, 8]",
            ]
            last = f"%a{i}"
        text = "func main(%x: f32[4, 8], %w: f32[8, 8]) -> (y: f32[4, 8]) {\n" + "\n".join(lines)
        module = parse_module(f"{text}\n  return {last}\n}}\n")
        PassManager.parse("fuse-vector").run(module)
        made.append([n.op for n in module.main].count("fused"))
        assert list(module.functions) == ["main", "vec_exp_add"]
    assert made == [20, 40]
