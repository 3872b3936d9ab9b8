"""gather-rows: asked for prices, all readers together, and what a training graph keeps for backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moec.eval import run
from moec.ir.graph import Module
from moec.ir.symbol import evaluate
from moec.ir.text import parse_module
from moec.ir.types import TensorType
from moec.passes.base import Context, PassManager, Result
from moec.target import KernelTime

GOLDEN = Path(__file__).parent.parent / "golden" / "passes" / "gather-rows"


@dataclass
class Priced:
    """A target for which an op takes as many microseconds as told, 1 for others; of rows that a product gathers,
    ``gathering`` more."""

    us: Mapping[str, float]
    gathering: float = 0.0
    name: str = "toy"

    def estimate(
        self, op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> KernelTime:
        us = self.us.get(op, 1.0)
        if op == "permute" and operands[0] is not None and operands[0].dtype.is_int:
            us = 1.0
        source = {"grouped_matmul": 4, "grouped_matmul_dw": 3}.get(op, 9)
        us += self.gathering if len(operands) > source and operands[source] is not None else 0.0
        return KernelTime(op, "toy", 1, 0, us, 0.5, 0.0, "toy", 0, 0)


def layer(name: str) -> Module:
    return parse_module((GOLDEN / f"{name}.mir").read_text(encoding="utf-8").partition("==== expected\n")[0])


def apply(module: Module, context: Context, spec: str = "gather-rows") -> Result:
    return PassManager.parse(spec).run(module, context)[0].result


def test_it_is_done_only_where_it_is_faster() -> None:
    """Rows are sorted in 8 us, their numbers in 1 and made in 1; two products of 1 us take 3 more each: 10 to 10."""
    module = layer("layer")
    result = apply(module, Context(Priced({"permute": 8.0}, gathering=3.0), {"T": 4}))
    assert not result.applied and {m.rule for m in result.near_misses} == {
        "gather-sorted-rows", "gather-sorted-rows-biased",
    }  # fmt: skip
    assert {m.reason for m in result.near_misses} == {"on toy it would take 10.0 us, and takes 10.0 us as it is"}
    assert apply(module, Context(Priced({"permute": 8.1}, gathering=3.0), {"T": 4})).counts() == {
        "gather-sorted-rows": 1, "gather-sorted-rows-biased": 1,
    }  # fmt: skip
    assert not [n for n in module.main if n.op == "permute" and n.operand(0).type.dtype.is_float]


def test_without_a_target_or_sizes_nothing_is_done() -> None:
    for context in (Context(), Context(Priced({"permute": 99.0}))):
        result = apply(layer("layer"), context)
        assert not result.applied
        assert {m.reason for m in result.near_misses} == {"no target says that gathering in the product is faster"}


def test_a_training_graph_says_what_it_keeps() -> None:
    """2 T rows of 8 bf16 for T = 65536: 2 MiB; x and 4 bytes a row instead once it is done."""
    sizes = {"T": 65536}
    refused = apply(layer("joint"), Context(Priced({}, gathering=5.0), sizes))
    (reason,) = {m.reason for m in refused.near_misses}
    assert reason.endswith("; it keeps 2.0 MiB of rows for backward (always=true does not)")

    def kept(module: Module) -> int:
        types = [n.result.type for n in module.main if n.op == "save"]
        return sum(evaluate(t.numel(), sizes) * t.dtype.bits // 8 for t in types)

    before, after = layer("joint"), layer("joint")
    apply(after, Context(), "gather-rows{always=true}")
    assert kept(before) - kept(after) == sizes["T"] * (2 * 8 * 2 - 8 * 2 - 2 * 4)


def test_readers_that_do_not_gather_are_named() -> None:
    result = apply(layer("not_read_elsewhere"), Context(Priced({"permute": 99.0}), {"T": 4}))
    assert {m.reason for m in result.near_misses} == {"the rows are also read by an output"}


@pytest.mark.parametrize("name", ["layer", "joint"])
def test_values_are_kept(name: str) -> None:
    before, after = layer(name), layer(name)
    assert apply(after, Context(witness=lambda m: {}), "gather-rows{always=true}").applied
    rng, tokens = np.random.default_rng(0), 5
    experts = rng.integers(0, 3, (tokens, 2))
    given = {"experts": experts, "counts": np.bincount(experts.ravel(), minlength=4)}
    for v in before.main.inputs:
        shape = [evaluate(d, {"T": tokens}) for d in v.type.dims]
        given.setdefault(v.name, rng.normal(size=shape))
    old, new = (run(m, given, fp64=True) for m in (before, after))
    for key, a in old.items():
        np.testing.assert_array_equal(a, new[key])
