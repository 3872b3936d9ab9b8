"""Passes keep effects in their order, sizes behind what decides them, and kernels off the host."""

from __future__ import annotations

import numpy as np
import pytest

from moec.diagnostics import CheckFailed
from moec.eval import run
from moec.frontend.dsl import parse_moe
from moec.ir.text import parse_module
from moec.ops.verify import verify
from moec.passes.base import Context, PassManager, default_passes

TEXT = """
group g = 2
dim T in [1, 64]
input x: f32[T, 4], c: i64[]
grown = x * 2 + 1
read = to_host(grown)                                         # before the collective; their sum could be one kernel
sum = all_reduce(x, group = g, reduction = "sum")
both = grown + sum
row = reduce_max(x, axes = [0], keepdims = true) * 2          # before its rows are counted
n = size(to_host(c), at_most = 8)
padded = expand(row, shape = [n, 4]) * row
host {
    scale = read * 2 + 1
    limit = scale * scale
}
y = all_gather(silu(both) - to_device(limit), group = g, axis = 0)
output y, padded
"""


def test_passes_that_are_not_about_order_keep_it_and_the_result() -> None:
    module = parse_moe(TEXT)
    rng = np.random.default_rng(0)
    given = {f"rank{r}.x": rng.standard_normal((3, 4)) for r in range(2)} | {"c": np.array(5)}
    before = run(module, given, fp64=True)

    def effects() -> list[str]:
        kept = ("all_reduce", "all_gather", "to_host", "host", "bind_size")
        return [n.op for n in module.main if n.op in kept]

    order = effects()
    passes = [p for p in default_passes() if p.name not in ("sync-removal", "reorder-launch")]
    PassManager(passes).run(module, Context())
    verify(module)
    assert effects() == order
    assert any(n.op == "fused" for n in module.main)
    (step,) = [n.attrs["fn"] for n in module.main if n.op == "host"]
    assert [n.op for n in module.functions[step] if n.op != "constant"] == ["mul", "add", "mul"]
    after = run(module, given, fp64=True)
    assert after["rank0.padded"].shape == (5, 4)
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-12)


def test_a_verifier_finds_what_lies_elsewhere() -> None:
    head = "func main(%x: f32[2]) -> (y: f32[2]) {"
    text = head + "\n  %h = to_host(%x) : f32[2]\n  %y = neg(%h) : f32[2]\n  return %y\n}\n"
    with pytest.raises(CheckFailed, match="neg runs on the device, and 'h' lies on the host"):
        verify(parse_module(text))
    verify(parse_module(text.replace("neg", "to_device")))
