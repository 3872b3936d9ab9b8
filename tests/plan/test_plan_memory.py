"""The plan applied: gradients keep every bit, what the graph then keeps is what was planned, and it is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from moec.autodiff import saved_values
from moec.cli.memory import Memory
from moec.diagnostics import Refusal
from moec.driver import load_target
from moec.frontend.dsl import parse_moe
from moec.ir.graph import Module
from moec.ops.verify import verify
from moec.passes.base import TRAIN_PIPELINE, Context, PassManager, Step, parse_passes
from moec.passes.plan_memory import PlanMemory
from moec.passes.plan_memory_fixed import fixed_bytes
from moec.sources import read
from moec.witness import Witness
from tests.support.command import moec
from tests.support.flat_target import Flat
from tests.support.train import copy

LAYER = Path(__file__).parents[1] / "data/layers/deepseek_v3_layer_dynamo_batched_mm_dyn_op24__onnxsim.onnx"
FRONT = TRAIN_PIPELINE.split(",fuse-residual")[0] + ",inline,canonicalise,cse,dce"
TARGET = Flat(load_target("ascend910b1").machine)
SIZES = {"s47": 2, "s12": 256}


@pytest.fixture(scope="module")
def joint() -> Module:
    """The joint graph of a DeepSeek-V3 layer at small widths, as plans are made of it."""
    module = read(LAYER).module
    PassManager(parse_passes(FRONT)).run(module, Context(TARGET, SIZES))
    return module


def plan(module: Module, options: str) -> Step:
    context = Context(TARGET, SIZES)
    sweep = "" if "sweep" in options else ",sweep=0"
    passes = f"plan-memory{{{options}{sweep}}},cse,canonicalise,cse,dce"
    return PassManager(parse_passes(passes)).run(module, context)[0]


def gib(share: float, step: Step) -> float:
    """A budget between what is fixed and what everything kept takes."""
    assert step.result.memory is not None
    fixed = sum(step.result.memory["fixed_bytes"].values())
    return (fixed + share * (step.result.memory["unplanned_peak_bytes"] - fixed)) / 2**30


@pytest.mark.parametrize("pcie", [pytest.param(0.0, marks=pytest.mark.slow), 0.5])
def test_the_planned_graph_has_the_same_gradients_and_keeps_what_was_planned(joint: Module, pcie: float) -> None:
    options = f"in_flight=8,shards=8,pcie={pcie}"
    whole = plan(copy(joint), f"budget=64.0,{options}")
    assert whole.result.memory is not None and whole.result.memory["saved_percent"] == 0.0
    fates = set()
    for share in (0.8, 0.6):
        made = copy(joint)
        witness = Witness.of(made, None)
        memory = plan(made, f"budget={gib(share, whole)!r},{options}").result.memory
        assert memory is not None
        verify(made)
        assert memory["peak_bytes"] <= memory["budget_bytes"] < memory["unplanned_peak_bytes"]
        kept = 8 * sum(s.bytes(SIZES) or 0 for s in saved_values(made))
        assert kept == memory["saved_bytes"] < memory["unplanned_saved_bytes"]
        fates |= {t["fate"] for t in memory["tensors"]}
        for old, new in zip(witness.baseline, [witness._run(made, c) for c in witness.cases], strict=True):
            assert all(np.array_equal(a, new[name], equal_nan=True) for name, a in old.items())
    assert fates == ({"keep", "recompute"} if pcie == 0.0 else {"keep", "swap", "recompute"})


@pytest.mark.slow
def test_choices_of_experts_are_never_made_again_whatever_the_budget(joint: Module) -> None:
    whole = plan(copy(joint), "budget=64.0,in_flight=8,shards=8,pcie=0.0")
    made = copy(joint)
    memory = plan(made, f"budget={gib(0.6, whole)!r},in_flight=8,shards=8,pcie=0.0").result.memory
    assert memory is not None
    routing = [t for t in memory["tensors"] if t["kind"] == "routing"]
    assert routing and all(t["fate"] == "keep" and "near-tie" in t["why"] for t in routing)


@pytest.mark.slow
def test_a_sweep_costs_no_more_with_more_memory(joint: Module) -> None:
    memory = plan(copy(joint), "budget=64.0,in_flight=8,shards=8,pcie=0.5,sweep=10").result.memory
    assert memory is not None
    rows = memory["sweep"]
    assert len(rows) > 3
    assert [r["budget_bytes"] for r in rows] == sorted(r["budget_bytes"] for r in rows)
    times = [r["added_time_percent"] for r in rows]
    assert times == sorted(times, reverse=True) and times[0] > times[-1] == 0.0


def test_options_reach_the_pass() -> None:
    options = Memory(None, None, "32GiB", "50GB/s", "1.5TiB", 94, 4, 48, exchanges=True)
    (made,) = parse_passes(options.passes(train=True, replaced=False))
    assert made == PlanMemory(budget=32.0, pcie=50.0, host=1536.0, in_flight=94, layers=4, shards=48, exchanges=True), (
        made.spec
    )


@pytest.mark.parametrize(
    ("pipeline", "stage", "in_flight", "layers"),
    [("16,2,2", 0, 94, 4), ("16,2,2", 15, 34, 4), ("8,1,3", 0, 24, 3), ("8,1,3", 7, 3, 3), ("1,1,1", 0, 1, 1)],
)
def test_a_pipeline_tells_what_is_in_flight(pipeline: str, stage: int, in_flight: int, layers: int) -> None:
    options = Memory(None, None, "32GiB", pipeline=pipeline, stage=stage)
    (made,) = parse_passes(options.passes(train=True, replaced=False))
    assert isinstance(made, PlanMemory) and (made.in_flight, made.layers) == (in_flight, layers)


def test_a_budget_below_what_is_fixed_is_refused(joint: Module) -> None:
    with pytest.raises(Refusal, match=r"within 1 KiB: weights .* gradients .* optimizer .* whatever is planned"):
        plan(copy(joint), f"budget={1024 / 2**30!r}")


def test_a_refused_budget_names_the_least_peak_and_what_would_do(joint: Module) -> None:
    """Halved from what is fixed: recomputing alone does not come down to it, parking does."""
    whole = plan(copy(joint), "budget=64.0,in_flight=64,shards=8,pcie=0.0")
    tight = f"budget={gib(0.1, whole)!r},in_flight=64,shards=8,pcie=0.0"
    with pytest.raises(Refusal) as told:
        plan(copy(joint), tight)
    text = str(told.value)
    assert "the least that a plan reaches is" in text and "MiB or more" in text and "fewer forwards in flight" in text
    assert "--pcie 25GB/s (parking): a plan within" in text and "on the host" in text
    plan(copy(joint), tight.replace("pcie=0.0", "pcie=25.0,host=1000.0"))


def test_communicators_and_operators_of_a_library_count() -> None:
    graph = parse_moe(
        """
        group tp = 2
        group ep = 4 over tp
        input x: f32[8, 4]
        y = all_reduce(all_reduce(x, group = tp, reduction = "sum"), group = ep, reduction = "sum")
        output z = all_reduce(y * 2.0, group = tp, reduction = "sum")
        """
    ).main
    found = fixed_bytes(graph, {}, 1, 1)
    assert found["communicators"] == 2 * 2 * 200 * 2**20 and "operators" not in found
    assert fixed_bytes(graph, {}, 1, 1, operators=True)["operators"] == 16 * 2**20


def test_a_graph_without_saves_has_nothing_to_plan() -> None:
    module = read(LAYER).module
    with pytest.raises(Refusal, match="saves nothing"):
        plan(module, "budget=1.0")


@pytest.mark.slow
def test_the_command_plans_and_tells(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sizes = ",".join(f"{k}={v}" for k, v in SIZES.items())
    shown = moec("compile", LAYER, "-o", out, "--train", "--budget", "8MiB", "--in-flight", "4", "--set", sizes)
    assert shown.returncode == 0, shown.stderr
    assert "memory: peak" in shown.stdout and "fate" in shown.stdout
    memory = json.loads((out / "summary.json").read_text())["memory"]
    assert memory["budget_bytes"] == 8 << 20 and memory["in_flight"] == 4
    assert memory["peak_bytes"] <= memory["budget_bytes"]
    assert sum(memory["parts"].values()) == memory["peak_bytes"] and memory["parts"]["workspace"] > 0
    assert all(f"{part} " in shown.stdout for part in ("weights", "gradients", "optimizer", "activations", "workspace"))
    assert "<svg" in (out / "report.html").read_text() and "budget" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "64GiB"], "without --train"),
        (["--train", "--budget", "lots"], "'lots' is no size"),
        (["--train", "--budget", "64GiB", "--pcie", "25GB"], "'25GB' is no rate"),
        (["--train", "--budget", "64GiB", "--recompute", "act"], "together"),
        (["--train", "--budget", "64GiB", "--passes", "autodiff"], "with --passes"),
        (["--train", "--budget", "64GiB", "--pipeline", "16,2"], "'16,2' is not STAGES,CHUNKS,LAYERS"),
        (["--train", "--budget", "64GiB", "--pipeline", "4,1,1", "--stage", "4"], "no pipeline: 4 stages"),
        (["--train", "--budget", "64GiB", "--pipeline", "4,1,1", "--layers", "4"], "--pipeline together with"),
        (["--train", "--budget", "64GiB", "--stage", "2"], "--stage without --pipeline"),
        (["--train", "--budget", "64GiB", "--in-flight", "1000000000"], "forwards in flight"),
        (["--train", "--budget", "64GiB", "--pipeline", "1000000,2,2"], "forwards in flight"),
        (["--train", "--budget", "0GiB"], "--budget of nothing"),
        (["--train", "--in-flight", "4", "--pcie", "1GB/s"], "--pcie, --in-flight without --budget"),
        (["--passes", "autodiff,plan-memory{budget=nan}"], "none is without end"),
        (["--passes", "autodiff,plan-memory{budget=inf}"], "none is without end"),
        (["--passes", "autodiff,plan-memory{sweep=-3}"], "sweep not below"),
        (["--passes", "autodiff,plan-memory{in_flight=100000}"], "in_flight is 1024 at most"),
        (["--train", "--budget", "9" * 400 + "TiB"], "is no size"),
        (["--train", "--budget", "64GiB", "--pcie", "9" * 400 + "GB/s"], "is no rate"),
    ],
)
def test_wrong_usage_is_told(options: list[str], words: str, tmp_path: Path) -> None:
    shown = moec("compile", LAYER, "-o", tmp_path / "out", *options)
    assert shown.returncode == 2 and words in shown.stderr


def test_a_layer_that_keeps_nothing_for_backward_is_told_to_leave_out_the_budget(tmp_path: Path) -> None:
    (tmp_path / "sum.moe").write_text("input x: bf16[4, 32], z: bf16[4, 32]\noutput y = x + z\n")
    shown = moec("compile", tmp_path / "sum.moe", "-o", tmp_path / "out", "--train", "--budget", "1GiB")
    assert shown.returncode == 1 and "leave out --budget" in shown.stderr and not (tmp_path / "out").exists()
