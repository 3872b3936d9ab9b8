"""Saved values that are computed again or parked on the host: gradients keep every bit, fewer bytes are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moec.autodiff import backward_nodes, saved_values
from moec.diagnostics import Usage
from moec.ir.graph import Module
from moec.ir.text import parse_module, print_module
from moec.ops.verify import verify
from moec.passes.base import Context, PassManager, Step, parse_passes
from moec.sources import read
from moec.witness import Witness
from tests.support.train import copy

LAYER = Path(__file__).parents[1] / "data/layers/deepseek_v3_layer_dynamo_batched_mm_dyn_op24__onnxsim.onnx"
FRONT = (
    "canonicalise,fold{weights=false},recover-rope,recover-attention,canonicalise,cse,dce,recover-moe,expand-moe,"
    "rope-concat-elim,canonicalise,cse,dce,autodiff,inline,canonicalise,cse,dce"
)


@pytest.fixture(scope="module")
def module() -> Module:
    """The joint graph of a DeepSeek-V3 layer (latent attention, routed and shared experts) at small widths."""
    made = read(LAYER).module
    PassManager(parse_passes(FRONT)).run(made)
    return made


def sizes(module: Module) -> dict[str, int]:
    return dict.fromkeys(module.symbols, 4)


def kept(module: Module) -> int:
    return sum(s.bytes(sizes(module)) or 0 for s in saved_values(module))


def names(module: Module) -> list[str]:
    return [s.name for s in saved_values(module)]


def run(module: Module, passes: str) -> list[Step]:
    return list(PassManager(parse_passes(passes)).steps(module, Context(None, sizes(module))))


@pytest.mark.parametrize(
    "what", ["act", "norm", "mla_up", "permute", "act+norm+mla_up+permute", "all", "swiglu+rms_norm.2"]
)
def test_gradients_keep_every_bit_and_fewer_bytes_are_kept(module: Module, what: str) -> None:
    made = copy(module)
    witness = Witness.of(made, None)
    before = kept(made)
    steps = run(made, f"recompute{{what={what}}},cse,canonicalise,cse,dce")
    assert steps[0].result.applied
    verify(made)
    assert kept(made) < before
    for old, new in zip(witness.baseline, [witness._run(made, c) for c in witness.cases], strict=True):
        for name, array in old.items():
            assert np.array_equal(array, new[name], equal_nan=True), name


def test_what_is_made_again_waits_for_backward_and_is_not_merged_with_the_first_time(module: Module) -> None:
    made = copy(module)
    before = sum(n.op == "swiglu" for n in made.main)
    run(made, "recompute{what=act},canonicalise,cse,dce")
    again = [n for n in made.main if n.op == "swiglu" and n in backward_nodes(made.main)]
    assert len(again) == before == 2
    for node in again:
        fence = node.operand(0).producer
        while fence is not None and fence.op != "after":
            fence = fence.operand(0).producer
        assert fence is not None and fence.operands[1] is not None
        assert fence.operand(1).producer in backward_nodes(made.main)


@pytest.mark.parametrize("name", ["gating.experts", "gating.counts", "gating.weights", "permute.positions"])
def test_choices_of_experts_are_never_made_again(module: Module, name: str) -> None:
    made = copy(module)
    (step,) = run(made, f"recompute{{what={name}}}")
    assert not step.result.applied and name in names(made)
    (miss,) = step.result.near_misses
    assert "near-tie" in miss.reason and name in miss.reason


def test_all_leaves_choices_alone(module: Module) -> None:
    made = copy(module)
    run(made, "recompute{what=all},dce")
    assert {"gating.experts", "gating.counts", "gating.weights", "permute.positions"} <= set(names(made))


def test_nothing_is_done_where_as_many_bytes_would_be_kept_instead() -> None:
    made = parse_module(
        "symbol T in [1, 64]\n\nfunc main(%x: f32[T, 8], %w: f32[8, 8]) -> (y: f32[T, 8]) {\n"
        "  %a = matmul(%x, %w) {transpose_a = false, transpose_b = false, to = none} : f32[T, 8]\n"
        "  %b = add(%a, %x) : f32[T, 8]\n  %c = exp(%b) : f32[T, 8]\n  %d = mul(%c, %b) : f32[T, 8]\n"
        "  return %d\n}\n"
    )
    PassManager(parse_passes("autodiff")).run(made)
    assert names(made) == ["b", "c"]
    (step,) = run(made, "recompute{what=b}")
    assert not step.result.applied
    assert "would be kept" in step.result.near_misses[0].reason


def test_names_that_there_are_not_are_refused_all_at_once(module: Module) -> None:
    with pytest.raises(Usage, match=r"(?s)'swigluu'.*did you mean 'swiglu'.*'zzz'.*kinds: act"):
        run(copy(module), "recompute{what=swigluu+zzz}")


@pytest.mark.parametrize("ahead", [0, 4, 10_000])
def test_what_is_parked_comes_back_before_its_reader_and_after_the_seam(module: Module, ahead: int) -> None:
    made = copy(module)
    witness = Witness.of(made, None)
    before = kept(made)
    run(made, f"swap{{what=permute+grouped_matmul,ahead={ahead}}},canonicalise,cse,dce")
    verify(made)
    assert kept(made) < before
    backward = backward_nodes(made.main)
    outs = [n for n in made.main if n.op == "swap_out"]
    ins = [n for n in made.main if n.op == "swap_in"]
    assert len(outs) == len(ins) == 3
    assert all(n in backward for n in ins) and not any(n in backward for n in outs)
    for old, new in zip(witness.baseline, [witness._run(made, c) for c in witness.cases], strict=True):
        assert all(np.array_equal(a, new[k], equal_nan=True) for k, a in old.items())


def test_two_runs_print_the_same(module: Module) -> None:
    first, second = copy(module), copy(module)
    for each in (first, second):
        run(each, "recompute{what=act+norm},swap{what=permute},cse,dce")
    assert print_module(first) == print_module(second)
