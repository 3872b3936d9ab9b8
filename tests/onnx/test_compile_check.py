"""``moec compile --check`` takes every real export: each pass keeps its numbers, and the optimised model is written
whether or not all its ops have kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import floats, model, node

from moec.diagnostics import CheckFailed
from moec.driver import compile
from moec.frontend.onnx import import_model
from moec.ir.data import ArrayData
from moec.ops.build import Builder
from moec.witness import Witness

DATA = Path(__file__).parent.parent / "data"
LAYERS = sorted((DATA / "layers").glob("*.onnx"))
PARTS = 24


def checked(path: Path, out: Path) -> dict[str, Any]:
    """The summary of a compilation that was checked."""
    done = compile(path, out, check=True)
    assert (out / "optimized.onnx").is_file()
    assert (done.program is None) == bool(done.summary["not_lowered"])
    return done.summary


@pytest.mark.parametrize("path", LAYERS, ids=lambda p: p.stem)
def test_sample_of_layers(path: Path, tmp_path: Path) -> None:
    checked(path, tmp_path / "out")


@pytest.mark.parametrize("part", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, PARTS))])
def test_corpus(corpus: Any, part: int, tmp_path: Path) -> None:
    for record in corpus.records()[part::PARTS]:
        checked(corpus.onnx(record["name"]), tmp_path / record["name"])


def quantised() -> Any:
    """A product whose operand is quantised while the model runs: a sum in another order may round another way."""
    nodes = [
        node("MatMul", ["x", "a"], ["h"]),
        node("DynamicQuantizeLinear", ["h"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z"], ["i"]),
        node("Cast", ["i"], ["f"], to=1),
        node("Mul", ["f", "s"]),
    ]
    rng = np.random.default_rng(0)
    held = {"a": rng.standard_normal((64, 64)).astype(np.float32), "w": rng.integers(0, 255, (64, 8)).astype(np.uint8)}
    return import_model(model(nodes, {"x": floats("T", 64)}, ["y"], held))


def test_a_sum_in_another_order_before_a_rounding_step_is_no_failure() -> None:
    """Both sides are evaluated in fp64 there: in f32 such a step turns a last bit into 1/255 of the range."""
    module = quantised()
    witness = Witness.of(module, None)
    assert witness.fp64
    (product,) = [n for n in module.main if n.op == "matmul" and n.result.type.dtype.is_float]
    b = Builder(module.main, product)
    halves = [
        b.matmul(
            b.slice(product.operand(0), axis=1, start=s, stop=s + 32, step=1),
            b.slice(product.operand(1), axis=0, start=s, stop=s + 32, step=1),
            transpose_a=False,
            transpose_b=False,
        )
        for s in (32, 0)
    ]
    product.result.replace_with(b.add(*halves))
    witness.check(module, "split the sum")


def test_a_wrong_number_before_a_rounding_step_is_one() -> None:
    module = quantised()
    witness = Witness.of(module, None)
    (product,) = [n for n in module.main if n.op == "matmul" and n.result.type.dtype.is_float]
    b = Builder(module.main, product.next)
    uses = list(product.result.uses)
    scaled = b.mul(product.result, b.constant(value=ArrayData(np.array(1.02, np.float32))))
    for user in uses:
        for i, v in enumerate(user.operands):
            if v is product.result:
                user.set_operand(i, scaled)
    with pytest.raises(CheckFailed, match="scale against import: output 'y' is off"):
        witness.check(module, "scale")


def test_index() -> None:
    assert {p.stem for p in LAYERS} == {r["name"] for r in json.loads((DATA / "layers" / "index.json").read_text())}
