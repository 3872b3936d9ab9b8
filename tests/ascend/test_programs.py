"""From layer IR to a program that runs: buffers, views, weights, sizes at run time, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ascend_run import TEMPLATES, built

from moec.codegen.capacities import Capacities
from moec.codegen.lower import lower_module
from moec.codegen.program import Program
from moec.codegen.project import write_project
from moec.diagnostics import Refusal
from moec.ir.data import ArrayData
from moec.ir.graph import Module
from moec.ir.symbol import sym
from moec.ir.text import parse_module
from moec.ops.build import Builder

CAPS = Capacities(aic=2, aiv=2)

TWO_PRODUCTS = """\
symbol T in [0, 4096]

func main(%x: f32[1, T, 40]) -> (y: f32[T, 24], h: f32[1, T, 56]) {
  %w1 = weight() {name = "w1", dtype = !f32, shape = [56, 40], data = none} : f32[56, 40]
  %w2 = weight() {name = "w/2", dtype = !f32, shape = [56, 24], data = none} : f32[56, 24]
  %h = matmul(%x, %w1) {transpose_a = false, transpose_b = true, to = none} : f32[1, T, 56]
  %flat = reshape(%h) {shape = [T, 56]} : f32[T, 56]
  %y = matmul(%flat, %w2) {transpose_a = false, transpose_b = false, to = none} : f32[T, 24]
  return %y, %h
}
"""


def lowered(text: str) -> Program:
    return lower_module(parse_module(text), CAPS, {})


def test_two_products_share_the_device(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    project = built(lowered(TWO_PRODUCTS), tmp_path)
    w1, w2 = rng.standard_normal((56, 40)).astype(np.float32), rng.standard_normal((56, 24)).astype(np.float32)
    for tokens in (0, 1, 7, 130):
        x = rng.standard_normal((1, tokens, 40)).astype(np.float32)
        got = project.outputs({"x": x, "w1": w1, "w/2": w2}, {"T": tokens})
        h = x.astype(np.float64) @ w1.T.astype(np.float64)
        np.testing.assert_allclose(got["h"], h, atol=1e-5)
        np.testing.assert_allclose(got["y"], h[0] @ w2.astype(np.float64), atol=1e-4)


def weights_module(rng: np.random.Generator) -> Module:
    """x @ w.T with w known, and the same kernel again for a second weight."""
    module = parse_module(TWO_PRODUCTS)
    for node in list(module.main):
        if node.op == "weight" and node.attrs["name"] == "w1":
            node.attrs["data"] = ArrayData(rng.standard_normal((56, 40)).astype(np.float32))
    return module


def test_weights_with_data_travel_with_the_project(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    module = weights_module(rng)
    project = built(lower_module(module, CAPS, {}), tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert [(w["name"], w["offset"]) for w in manifest["weights"]] == [("w1", 0), ("w/2", None)]
    data = next(n.attrs["data"].numpy() for n in module.main if n.op == "weight")
    x = rng.standard_normal((1, 9, 40)).astype(np.float32)
    w2 = rng.standard_normal((56, 24)).astype(np.float32)
    got = project.outputs({"x": x, "w/2": w2}, {"T": 9})
    np.testing.assert_allclose(got["h"], x @ data.T, atol=1e-5)


def test_equal_kernels_are_written_once() -> None:
    module = Module()
    module.symbols["T"] = (1, 64)
    text = """\
symbol T in [1, 64]

func main(%x: f32[T, 32], %a: f32[32, 32], %b: f32[32, 32]) -> (y: f32[T, 32]) {
  %h = matmul(%x, %a) {transpose_a = false, transpose_b = true, to = none} : f32[T, 32]
  %y = matmul(%h, %b) {transpose_a = false, transpose_b = true, to = none} : f32[T, 32]
  return %y
}
"""
    program = lowered(text)
    assert len(program.kernels) == 1
    assert [s.kernel for s in program.launches()] == ["matmul_f32", "matmul_f32"]
    assert program.lifetimes() == {"h": (0, 1), "y": (1, 2)}
    assert program.peak_bytes({"T": 10}) == 2 * 10 * 32 * 4


def test_everything_without_a_kernel_is_named_at_once() -> None:
    text = """\
symbol T in [1, 64]

func main(%x: f32[T, 32], %i: u16[T, 32]) -> (y: f32[T, 32], z: u16[T, 32]) {
  %a = pow(%x, %x) : f32[T, 32]
  %b = exp(%a) : f32[T, 32]
  %c = mod(%b, %x) : f32[T, 32]
  %d = mod(%x, %x) : f32[T, 32]
  %e = add(%c, %d) : f32[T, 32]
  %f = add(%i, %i) : u16[T, 32]
  return %e, %f
}
"""
    with pytest.raises(Refusal) as caught:
        lowered(text)
    lines = [line for line in str(caught.value).splitlines() if not line.startswith("  ->")]
    assert [line.split()[0] for line in lines] == ["pow", "mod", "add"]
    assert [int(line.split(":")[1].split()[0]) for line in lines] == [4, 7, 9]


def test_a_project_is_the_same_bytes_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_project(lowered(TWO_PRODUCTS), tmp_path / name, TEMPLATES, "Ascend910B1")
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert [str(f) for f in files] == [
        "CMakeLists.txt", "README.md", "host/arena.h", "host/main.cpp",
        "kernels/matmul_f32.cpp", "kernels/matmul_f32_2.cpp",
        "kernels/scalar_math.h",
        "manifest.json", "sites.json",
    ]  # fmt: skip
    for f in files:
        assert (tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes()


def test_a_run_outside_the_bounds_is_refused(tmp_path: Path) -> None:
    project = built(lowered(TWO_PRODUCTS), tmp_path)
    x = np.zeros((1, 5000, 40), np.float32)
    arrays = {"x": x, "w1": np.zeros((56, 40), np.float32), "w/2": np.zeros((56, 24), np.float32)}
    code, messages, _ = project.run(arrays, {"T": 5000})
    assert code == 1
    assert "T = 5000 is outside 0..4096" in messages


def test_sites_point_at_their_lines(tmp_path: Path) -> None:
    write_project(lowered(TWO_PRODUCTS), tmp_path, TEMPLATES, "Ascend910B1")
    sites = json.loads((tmp_path / "sites.json").read_text())
    spelling = {"set": "SetFlag<", "wait": "WaitFlag<", "barrier": "PipeBarrier<", "bound": "("}
    assert len(sites) > 40
    for site in sites.values():
        line = (tmp_path / site["file"]).read_text().splitlines()[site["line"] - 1]
        assert line.strip() == site["text"]
        assert spelling[site["kind"]] in line


def test_dims_in_host_code_are_the_dims_of_the_layer() -> None:
    module = Module()
    module.symbols["T"] = (1, 64)
    from moec.ir.graph import Graph
    from moec.ir.types import F32, TensorType

    graph = module.add(Graph("main"))
    t = sym("T")
    x = graph.add_input("x", TensorType(F32, (2 * t, 8)))
    w = graph.add_input("w", TensorType(F32, (8, 8)))
    y = Builder(graph, None).matmul(x, w, transpose_b=True)
    graph.set_outputs([y], ["y"])
    program = lower_module(module, CAPS, {})
    assert [str(d) for _, d in program.launches()[0].args] == ["2*T"]
