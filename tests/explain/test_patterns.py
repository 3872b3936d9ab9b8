"""Every pattern that stands in a real export is taken up by its rewrite, or refused with a reason that names it.

What stands in a file is found by detectors on the raw ONNX graph, which share nothing with moec; what became of it is
read from what ``moec explain`` says.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pattern_sweep import PASSES, Verdict, explained, sweep, table

DATA = Path(__file__).parents[1] / "data"
SAMPLE = {
    "attention/dbrx_layer_torchscript_dyn_op17_tf451": {"rotate-half": 2, "attention": 1, "residual-norm": 1},
    "attention/deepseek_v3_attention_dynamo_sdpa_dyn_op20": {
        "turned-pairs": 2,
        "attention": 1,
        "concat-halves": 1,
        "shared-rope-key": 1,
    },
    "attention/glm4_moe_attention_dynamo_eager_dyn_op18": {"partial-rotary": 2, "attention": 1},
    "layers/deepseek_v3_layer_dynamo_batched_mm_dyn_op24__onnxsim": {
        "norm-op": 4,
        "concat-halves": 1,
        "router": 1,
        "gathered-weights": 2,
    },
    "layers/qwen3_moe_layer_torchscript_batched_mm-eagerattn_dyn_op17": {"norm": 4, "router": 1, "gated-activation": 1},
    "qwen3_moe_moe_dynamo_grouped_mm_static_op20": {"sort": 1, "combined-rows": 1},
    "qwen3_moe_moe_torchscript_dyn_op20_tf451": {"nonzero": 8, "one-hot": 1, "gated-activation": 8},
}
"""Files that come with the tests, and how often some patterns stand in them at least."""

TRAINED = "as by the backward pass of a training step"
REFUSED = {
    "trainjoint": {TRAINED, "is also read by", "expected gather", "expected add"},
    "int8dyn": {"the router multiplies quantised integers"},
    "deepseek_v3_modelmask_torchscript": {"missing 5, 6, 7", "expected add", "is read elsewhere too"},
    "switch_transformers_modelmask": {"missing 1"},
    "jetmoe": {"sizes that the tracer baked in", "no sum over them was found", "is also read by gather"},
}
"""Files with sites that are refused, and what the reasons say."""
SLOWER = "as it is"
"""What the reason of a rewrite that the target finds slower ends in: of any file."""


@cache
def told(name: str) -> list[Verdict]:
    """The verdicts on a file of the sample."""
    return sweep(DATA / f"{name}.onnx")


def unsaid(verdicts: list[Verdict], name: str) -> list[str]:
    """Sites of a file that nothing was said of, or that were refused for no known reason."""
    known = {part for key, parts in REFUSED.items() if key in name for part in parts} | {SLOWER}
    return [
        f"{name}: {v.site.pattern} at {v.label}: {v.kind} {v.refused}"
        for v in verdicts
        if v.kind == "silent" or (v.kind == "refused" and not any(p in r for r in v.refused for p in known))
    ]


@pytest.mark.parametrize("name", [n if "layers/" not in n else pytest.param(n, marks=pytest.mark.slow) for n in SAMPLE])
def test_patterns_of_the_sample_fire(name: str) -> None:
    verdicts = told(name)
    counts = Counter(v.site.pattern for v in verdicts)
    assert not unsaid(verdicts, name)
    assert all(counts[p] >= n for p, n in SAMPLE[name].items()), counts
    assert all(v.fired for v in verdicts if v.site.pattern in SAMPLE[name])


def test_a_rewrite_that_does_not_fire_is_noticed() -> None:
    path = DATA / "attention/deepseek_v3_attention_dynamo_sdpa_dyn_op20.onnx"
    entries = explained(path)
    for pattern in ("turned-pairs", "attention", "concat-halves", "shared-rope-key"):
        without = [e for e in entries if e["pass"] not in PASSES[pattern]]
        assert {v.site.pattern for v in sweep(path, without) if v.kind == "silent"} >= {pattern}


def test_the_table_counts_every_site() -> None:
    name = "qwen3_moe_moe_torchscript_dyn_op20_tf451"
    head, row, total = table({name: told(name)}).splitlines()
    assert head.split()[0] == "file" and row.split()[0] == name
    assert row.split()[1:] == total.split()[1:] and row.split()[head.split().index("nonzero")] == "8/0/0"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_patterns_of_every_export_fire_or_are_refused(corpus: Any, part: int) -> None:
    found: list[str] = []
    for record in corpus.records()[part::8]:
        found += unsaid(sweep(corpus.onnx(record["name"])), record["name"])
    assert not found
