"""Dropping by a rewrite is one of the planner's choices: taken where it costs less than what else would make room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moec.driver import load_target
from moec.passes.base import Context, PassManager, train_passes
from moec.passes.plan_memory_drops import Drops, choose_drops
from tests.support.command import moec
from tests.support.flat_target import Flat
from tests.support.small_pangu import SIZES, layer

EXAMPLE = Path(__file__).parents[2] / "examples" / "pangu_ultra_moe_rank.moe"


def choose(share: float, pcie: float = 0.0) -> tuple[Drops, dict[str, Any], list[str]]:
    """Both ways at a share of what everything kept takes; the memory of the chosen one and its passes."""
    context = Context(Flat(load_target("ascend910b1").machine), SIZES)
    whole = plan(context, "budget=1.0,in_flight=16,shards=8,pcie=0.0")[1]
    fixed = sum(whole["fixed_bytes"].values())
    budget = (fixed + share * (whole["unplanned_peak_bytes"] - fixed)) / 2**30
    return plan(context, f"budget={budget!r},in_flight=16,shards=8,pcie={pcie}")


def plan(context: Context, options: str) -> tuple[Drops, dict[str, Any], list[str]]:
    module = layer()
    passes, drops = choose_drops(module, train_passes("", f"plan-memory{{{options},sweep=3}}"), context)
    assert drops is not None
    at = [p.name for p in passes].index("plan-memory")
    memory = PassManager(passes[: at + 1]).run(module, context)[-1].result.memory
    assert memory is not None
    return drops, drops.told(memory), [p.name for p in passes]


def test_nothing_is_dropped_where_everything_fits() -> None:
    drops, memory, passes = choose(1.0)
    assert not drops.chosen and "prob-placement" not in passes
    assert memory["drops"]["kept"]["added_time_percent"] == 0.0 < memory["drops"]["dropped"]["added_time_percent"]
    assert all(t["fate"] == "keep" for t in memory["tensors"])


def test_experts_outputs_are_dropped_where_room_is_short_and_nothing_may_be_parked() -> None:
    drops, memory, passes = choose(0.5)
    assert drops.chosen and passes.count("prob-placement") == 2
    dropped = [t for t in memory["tensors"] if t["fate"] == "drop"]
    assert [t["tensor"] for t in dropped] == ["probs", "all_to_all_v"], "the weights are kept as they were sorted"
    rows = dropped[1]
    assert rows["at"].startswith("<text>:") and "us a period" in rows["why"]
    assert rows["bytes"] == SIZES["p"] * SIZES["mbs"] * 3 * 24 * 2, "T*K rows of bf16"
    ways = memory["drops"]
    assert ways["dropped"]["period_us"] < ways["kept"]["period_us"], "both ways keep the budget"
    assert memory["added_time_percent"] == ways["dropped"]["added_time_percent"] > 0
    # shares count from what is saved where nothing is dropped
    whole = ways["kept"]["saved_bytes"]
    assert memory["unplanned_saved_bytes"] == whole > ways["dropped"]["saved_bytes"]
    assert memory["saved_percent"] == pytest.approx(100 * (1 - memory["saved_bytes"] / whole), abs=1e-3)


def test_parking_for_nothing_is_better_than_dropping() -> None:
    """The link is so fast that copies hide; a rewrite adds its products."""
    drops, memory, _ = choose(0.5, pcie=1000.0)
    assert not drops.chosen and any(t["fate"] == "swap" for t in memory["tensors"])
    assert memory["drops"]["kept"]["period_us"] < memory["drops"]["dropped"]["period_us"]


def test_a_layer_without_experts_has_nothing_to_drop(tmp_path: Path) -> None:
    source = tmp_path / "dense.moe"
    source.write_text(
        "dim T in [1, 64] = 4\ninput x: bf16[T, 32]\nweight a: bf16[32, 32], b: bf16[32, 32]\n"
        "output y = silu(x @ a.T) @ b.T\n"
    )
    shown = moec("memory", source, "--budget", "1GiB", "--json")
    assert shown.returncode == 0, shown.stderr
    memory = json.loads(shown.stdout)
    assert "drops" not in memory and memory["saved_percent"] == 0.0


def test_wrong_quantities_are_told_by_moec_memory() -> None:
    shown = moec("memory", EXAMPLE, "--budget", "lots")
    assert shown.returncode == 2 and "'lots' is no size" in shown.stderr
