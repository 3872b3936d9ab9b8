"""fuse-residual and fuse-norm on layers forward and joint: values kept, each norm one kernel, what stays is shared."""

from __future__ import annotations

import numpy as np
import pytest

from moec.eval import run
from moec.ir.graph import Graph, Module, Value
from moec.ir.symbol import sym
from moec.ir.text import parse_module, print_module
from moec.ir.types import BF16, F32, TensorType
from moec.ops.build import Builder
from moec.ops.rowspace import full_shape
from moec.passes.base import PassManager

T, D = sym("T"), 8
NAMED = "fuse-residual,fuse-norm,fuse-vector,dce"


def layers(count: int, seed: int, narrow: bool = False) -> Module:
    """Layers of norm, product, activation and residual sum, the norms of either kind."""
    rng = np.random.default_rng(seed)
    module = Module()
    module.symbols["T"] = (1, 64)
    g = module.add(Graph("main"))
    dtype = BF16 if narrow else F32
    x: Value = g.add_input("x", TensorType(dtype, (T, D)))
    b = Builder(g)
    for i in range(count):
        w = g.add_input(f"w{i}", TensorType(dtype, (D,)))
        m = g.add_input(f"m{i}", TensorType(dtype, (D, D)))
        if rng.integers(2):
            n = b.rms_norm(x, w, eps=2.0**-10)
        else:
            n = b.layer_norm(x, w, None, eps=2.0**-10, axis=1)
        h = b.matmul(n, m, transpose_a=False, transpose_b=False)
        x = b.add(x, b.tanh(h) if rng.integers(2) else h)
    g.set_outputs([x], ["y"])
    return module


def inputs(module: Module, tokens: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        v.name: rng.normal(size=[d if isinstance(d, int) else tokens for d in v.type.dims]) for v in module.main.inputs
    }


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_values_are_kept(seed: int, joint: bool) -> None:
    before, after = layers(3, seed), layers(3, seed)
    for module in (before, after):
        if joint:
            PassManager.parse("autodiff,canonicalise,cse,dce").run(module)
    steps = PassManager.parse(NAMED).run(after)
    done = {**steps[0].result.counts(), **steps[1].result.counts()}
    assert done["fuse-residual"] == 2 and done["fuse-norm"] >= (4 if joint else 1)
    for tokens in (1, 5):
        old, new = (run(m, inputs(before, tokens), fp64=True) for m in (before, after))
        assert old.keys() == new.keys()
        assert all(np.allclose(old[n], new[n], rtol=1e-9, atol=1e-11) for n in old)
    for fn, body in after.functions.items():
        if fn != "main":
            full_shape(body)
    text = print_module(after)
    assert print_module(parse_module(text)) == text


@pytest.mark.parametrize("narrow", [False, True])
def test_each_norm_is_in_one_kernel(narrow: bool) -> None:
    """Every row's mean square is taken in the kernel that scales by its root."""
    module = layers(4, 1, narrow)
    PassManager.parse("autodiff,canonicalise,cse,dce").run(module)
    PassManager.parse(NAMED).run(module)
    for fn, body in module.functions.items():
        if fn == "main":
            assert not [n.op for n in body if n.op in ("rsqrt", "reduce_mean")]
            continue
        roots = [n for n in body if n.op == "rsqrt"]
        assert all(any(u.op == "mul" for u in r.result.uses) for r in roots)


def test_no_more_kernels_than_without() -> None:
    made = []
    for spec in (NAMED, "fuse-vector,dce"):
        module = layers(6, 2)
        PassManager.parse("autodiff,canonicalise,cse,dce").run(module)
        PassManager.parse(spec).run(module)
        made.append([n.op for n in module.main].count("fused"))
    assert made[0] <= made[1]


def test_a_norm_is_cut_where_its_kernel_would_read_its_own_result() -> None:
    """The scale of the norm is computed from the norm itself by a product: both ends may not be one kernel."""
    text = """
func main(%x: f32[8, 8], %m: f32[8, 8]) -> (y: f32[8, 8]) {
  %0 = mul(%x, %x) : f32[8, 8]
  %1 = reduce_mean(%0) {axes = [1], keepdims = true} : f32[8, 1]
  %2 = rsqrt(%1) : f32[8, 1]
  %3 = mul(%x, %2) : f32[8, 8]
  %4 = matmul(%3, %m) {transpose_a = false, transpose_b = false, to = none} : f32[8, 8]
  %5 = mul(%4, %2) : f32[8, 8]
  return %5
}
"""
    before, after = parse_module(text), parse_module(text)
    PassManager.parse("fuse-norm").run(after)
    assert [n.op for n in after.main] == ["fused", "matmul", "mul"]
    given = {"x": np.eye(8) + 1, "m": np.arange(64.0).reshape(8, 8)}
    assert np.allclose(run(before, given, fp64=True)["y"], run(after, given, fp64=True)["y"])
