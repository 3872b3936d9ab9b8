"""``moec compile --train``: the joint graph, its saves in the summary, and wrong usage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import moec

from moec import driver
from moec.diagnostics import CheckFailed
from moec.eval import run
from moec.frontend.dsl import parse_moe
from moec.ir.graph import Module
from moec.ir.text import parse_module
from moec.passes.base import PASSES, Context, Pass, Result, parse_passes, register_pass, train_passes

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_command_writes_the_joint_graph_and_counts_what_it_saves(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = moec("compile", EXAMPLES / "tiny_moe.moe", "-o", out, "--train", "--check", "--set", "T=16")
    assert done.returncode == 0, done.stderr
    saved = json.loads((out / "summary.json").read_text())["saved"]
    assert saved["count"] == len(saved["values"]) == 11
    assert saved["bytes"] == sum(v["bytes"] for v in saved["values"])
    by_name = {v["name"]: v for v in saved["values"]}
    assert by_name["permute.rows"] == {"name": "permute.rows", "type": "f32[2*T, 64]", "times": 1, "bytes": 8192}
    assert f"saved activations: 11, {saved['bytes']:,} bytes" in done.stdout
    (text,) = (p.read_text() for p in (out / "ir").glob("*_autodiff.mir"))
    assert "d_y" in text and "save(" in text
    model = onnx.load(out / "optimized.onnx")
    assert [o.name for o in model.graph.output][:3] == ["y", "logits", "d_x"]


def test_options_reach_the_pass() -> None:
    spec = next(p for p in train_passes("loss=y,wrt=x+router,loss_scale=8.0,weight_grads=f32") if p.name == "autodiff")
    assert spec.spec == "autodiff{loss=y,wrt=x+router,weight_grads=f32,loss_scale=8.0}"
    compiled = driver.compile(EXAMPLES / "tiny_moe.moe", train="loss=y,wrt=router", print=lambda text: None)
    assert compiled.module.main.output_names == ["y", "logits", "d_router"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--wrt", "x"], 2, "--wrt without --train"),
        (["--train", "--passes", "cse"], 2, "--train with --passes that do not differentiate"),
        (["--train", "--wrt", "routr"], 1, "no input or weight 'routr'"),
        (["--train", "--loss", "z"], 1, "no output 'z'"),
        (["--train", "--weight-grads", "bf16"], 2, "kept in f32 or f64"),
        (["--train", "--loss-scale", "0"], 2, "a loss scale is a positive number"),
    ],
)
def test_wrong_usage_is_said(tmp_path: Path, arguments: list[str], status: int, message: str) -> None:
    done = moec("compile", EXAMPLES / "tiny_moe.moe", "-o", tmp_path / "out", *arguments)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr
    assert not (tmp_path / "out").exists()


def test_check_notices_a_pass_that_breaks_a_gradient() -> None:
    class WrongDerivative(Pass):
        """Takes the wrong activation's derivative: forward stays as it is."""

        name = "wrong-derivative"

        def run(self, module: Module, context: Context) -> Result:
            result = Result()
            for node in module.main:
                if node.op == "swiglu_grad":
                    node.attrs["activation"] = "relu"
                    node.proof = None
                    result.changed = True
            return result

    register_pass(WrongDerivative)
    try:
        passes = parse_passes("expand-moe,autodiff,wrong-derivative")
        with pytest.raises(CheckFailed, match="output 'd_"):
            driver.compile(EXAMPLES / "tiny_moe.moe", passes=passes, check=True, print=lambda text: None)
    finally:
        del PASSES["wrong-derivative"]


def test_sixteen_bit_gradients_of_a_block_are_within_rounding_of_those_in_f64() -> None:
    """A block whose numbers fit bf16, with experts chosen alike in both precisions."""
    text = (EXAMPLES / "tiny_moe.moe").read_text().replace("f32[", "bf16[").replace("I = 96", "I = 16")
    module = parse_moe(text)
    for each in train_passes("loss=y,weight_grads=f32"):
        each.run(module, Context())
    rng = np.random.default_rng(3)
    carrier = module.main.inputs[0].type.dtype.carrier
    arrays = {v.name: rng.standard_normal((8, 64)).astype(carrier) for v in module.main.inputs}
    weights = {
        n.attrs["name"]: (rng.standard_normal(n.attrs["shape"]) / 8).astype(carrier)
        for n in module.nodes()
        if n.op == "weight"
    }
    low, high = (run(module, arrays, weights, fp64=fp64) for fp64 in (False, True))
    for name in high:
        if name.startswith("d_"):
            off = np.linalg.norm(low[name].astype(float) - high[name]) / np.linalg.norm(high[name])
            assert off < 0.02, f"{name} is off by {off}"
            assert low[name].dtype == (carrier if name == "d_x" else np.float32)


@pytest.mark.parametrize(("options", "said"), [("loss_scale=8.0", 1), ("loss_scale=8.0,weight_grads=f32", 0), ("", 0)])
def test_a_loss_scale_that_f16_gradients_lose_again_is_said(options: str, said: int) -> None:
    module = parse_module("""
func main(%x: f16[3, 4]) -> (y: f16[3, 4]) {
  %w = weight() {name = "w", dtype = !f16, shape = [4, 4]} : f16[4, 4]
  %0 = matmul(%x, %w) {transpose_a = false, transpose_b = false, to = none} : f16[3, 4]
  return %0
}
""")
    (autodiff,) = parse_passes(f"autodiff{{{options}}}")
    missed = [m for m in autodiff.run(module, Context()).near_misses if "weight_grads=f32" in m.reason]
    assert len(missed) == said
