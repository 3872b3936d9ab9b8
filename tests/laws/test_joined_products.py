"""Gate and up as one product: only for weights that are put together at compile time, through calls too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from moec.driver import load_target
from moec.eval import run
from moec.ir.graph import Module
from moec.ir.text import parse_module
from moec.passes.base import Context, PassManager, Result

WIDE = "dense<f32[2, 3]: [[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]>"
FLAGS = "{transpose_a = false, transpose_b = true, to = none}"
BODY = f"""  %g = matmul(%x, %w) {FLAGS} : f32[4, 2]
  %a = silu(%g) : f32[4, 2]
  %u = matmul(%x, %v) {FLAGS} : f32[4, 2]
  %y = mul(%a, %u) : f32[4, 2]
"""


def weight(name: str, data: str = WIDE) -> str:
    return f'  %{name} = weight() {{name = "{name}", dtype = !f32, shape = [2, 3], data = {data}}} : f32[2, 3]\n'


def layer(before: str, inputs: str = "%x: f32[4, 3]", more: str = "") -> str:
    outputs, returned = ("y: f32[4, 2], z: f32[4, 3]", "%y, %z") if more else ("y: f32[4, 2]", "%y")
    return f"func main({inputs}) -> ({outputs}) {{\n{before}{BODY}{more}  return {returned}\n}}\n"


def fused(module: Module, options: str = "", target: str | None = "ascend910b1") -> Result:
    context = Context(load_target(target) if target else None)
    return PassManager.parse(f"fuse-swiglu{options},inline,fold,dce").run(module, context)[0].result


def test_one_product_is_left_and_no_copy() -> None:
    module = parse_module(layer(weight("w") + weight("v")))
    result = fused(module)
    assert [a.rule for a in result.applied] == ["silu-glu-of-products"]
    assert sorted(n.op for n in module.main) == ["matmul", "swiglu", "weight"]


def test_weights_that_a_repeated_layer_is_given_are_put_together_in_each_copy() -> None:
    text = f"func mlp(%x: f32[4, 3], %w: f32[2, 3], %v: f32[2, 3]) -> (y: f32[4, 2]) {{\n{BODY}  return %y\n}}\n"
    calls = "".join(f'  %y{i} = call(%x, %w{i}, %v{i}) {{fn = "mlp"}} : f32[4, 2]\n' for i in (0, 1))
    weights = "".join(weight(f"{n}{i}", WIDE.replace("0.5", str(i))) for n in "wv" for i in (0, 1))
    text += f"func main(%x: f32[4, 3]) -> (a: f32[4, 2], b: f32[4, 2]) {{\n{weights}{calls}  return %y0, %y1\n}}\n"
    module, before = parse_module(text), parse_module(text)
    assert [a.function for a in fused(module).applied] == ["mlp"]
    assert sorted(n.op for n in module.main) == ["matmul", "matmul", "swiglu", "swiglu", "weight", "weight"]
    x = {"x": np.random.default_rng(0).standard_normal((4, 3), np.float32)}
    for name, old in run(before, x).items():
        np.testing.assert_allclose(run(module, x)[name], old, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (layer("", "%x: f32[4, 3], %w: f32[2, 3], %v: f32[2, 3]"), "", "gate is no weight"),
        (layer(weight("w") + "  %v = neg(%w) : f32[2, 3]\n"), "", "gate is read elsewhere too"),
        (layer(weight("w") + weight("v", "none")), "", "up has no contents yet"),
        (layer(weight("w") + weight("v")), "{weights=false}", "gradients are given for each of them by name"),
        (
            layer(
                weight("w") + weight("v"),
                more=f"  %z = matmul(%u, %w) {FLAGS.replace('= true', '= false')} : f32[4, 3]\n",
            ),
            "",
            "matmul inside the pattern is also read by matmul",
        ),
    ],
)
def test_others_stay_two_products_with_the_reason(text: str, options: str, reason: str) -> None:
    module = parse_module(text)
    result: Any = fused(module, options)
    assert not result.applied and reason in result.near_misses[0].reason
    assert [n.op for n in result.near_misses[0].nodes] == ["mul"]
    assert [n.op for n in module.main].count("matmul") >= 2
