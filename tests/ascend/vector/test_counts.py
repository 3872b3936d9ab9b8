"""Instructions of one small case a kernel, counted by hand, against a run on the CPU model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
from vector_layers import GATINGS, NORMS, fused, gating_inputs, gating_text, routed
from vector_run import Layer, numbers


def counts(layer: Layer, arrays: dict[str, np.ndarray], folder: Path) -> list[dict[str, int]]:
    """Per launch: executed instructions by "pipe op", synchronisation left out."""
    path = folder / "stats.json"
    layer.run(arrays, MOEC_CPU_STATS=str(path))
    out = []
    for launch in json.loads(path.read_text())["launches"]:
        rows: Counter[str] = Counter()
        for row in launch["instructions"]:
            if row["op"].split("<")[0] not in ("SetFlag", "WaitFlag", "PipeBarrier", "SyncAll"):
                rows[f"{row['pipe']} {row['op']}"] += row["count"]
        out.append(dict(rows))
    return out


def test_tokens_there_and_back(tmp_path: Path) -> None:
    """4 tokens of 2 slots among 8 experts, rows of 16 f32, one core.

    permute counts 8 slots in one go: number the lanes, clear, fetch and cast the ids and spread them, then for the one
    run of 64 lanes subtract, abs, clip, add up; turn misses into hits (2), cast, store. It fetches the counts, the ids
    again and the rows, and stores the positions and 8 rows. unpermute fetches positions and weights once and a row a
    slot; a token clears its sum and stores it.
    """
    text = """
symbol T in [0, 100]
func main(%x: f32[T, 16], %e: i32[T, 2], %c: i32[8], %w: f32[T, 2]) -> (y: f32[T, 16]) {
  %r, %p = permute(%x, %e, %c) : f32[2*T, 16], i32[T, 2]
  %y = unpermute(%r, %p, %w) : f32[T, 16]
  return %y
}
"""
    layer = Layer(text, tmp_path, cores=1)
    permute, unpermute = counts(layer, routed(np.random.default_rng(0), 4, 16, 2, 8, "f32"), tmp_path)
    vector = {
        "ArithProgression": 1,
        "Duplicate": 1,
        "Cast": 2,
        "Brcb": 1,
        "Sub": 1,
        "Abs": 1,
        "Mins": 1,
        "Add": 1,
        "Muls": 1,
    }
    vector["Adds"] = 1
    moved = {"MTE2 DataCopyPad": 1 + 1 + 2, "MTE3 DataCopyPad": 1 + 1 + 8}
    assert scalar_free(permute) == {f"V {k}": n for k, n in vector.items()} | moved
    assert scalar_free(unpermute) == {
        "MTE2 DataCopyPad": 2 + 8,
        "V Duplicate": 4,
        "V Axpy": 8,
        "MTE3 DataCopyPad": 4,
    }


def scalar_free(rows: dict[str, int]) -> dict[str, int]:
    return {k: n for k, n in rows.items() if not k.startswith("S ")}


def test_rows(tmp_path: Path) -> None:
    """3 rows of 126 columns of the norm body, one core, one tile.

    Two means: fold 126 columns onto 64 lanes (copy, add), whole-reduce, divide by a filled count. Passes of 64 columns
    cover 128 padded columns in two instructions each: subtract the mean, times the deviation, times the weights; the
    square is one. The root costs a sqrt, a fill and a division; eps one. The maximum folds and reduces; the column is
    one add. Spreads: mean and root. Filled once: the columns that reductions leave ragged (as many slots as the plan
    has) and the column input's two buffers.
    """
    kinds = "%x: f32[T, 126], %w: f32[126], %b: f32[T, 1]"
    text = fused("norms", kinds, "g: f32[T, C]; d: f32[T, 1]", NORMS, "%g, %d").replace("C", "126")
    layer = Layer(text, tmp_path, cores=1)
    rng = np.random.default_rng(1)
    arrays = {"x": numbers(rng, (3, 126), "f32"), "w": numbers(rng, (126,), "f32"), "b": numbers(rng, (3, 1), "f32")}
    (got,) = counts(layer, arrays, tmp_path)
    fills = got.pop("V Duplicate")
    assert scalar_free(got) == {
        "MTE2 DataCopyPad": 3,
        "V Copy": 3,
        "V Add": 2 + 1,
        "V Max": 1,
        "V WholeReduceSum": 2,
        "V WholeReduceMax": 1,
        "V Div": 3,
        "V Brcb": 2,
        "V Sub": 2,
        "V Mul": 1 + 2 + 2,
        "V Adds": 1,
        "V Sqrt": 1,
        "MTE3 DataCopyPad": 2,
    }
    assert 3 + 1 <= fills - 2 <= 3 + 3


def test_gating_of_two_tokens(tmp_path: Path) -> None:
    """8 experts in 32 lanes, top 2, softmax before, one core: 2 tokens are one run of 64 lanes.

    Once: number the lanes of every row a tile may have and one row more; pads (4 steps); three offset tables.
    A tile: softmax, NaN to +inf, pads away, one sort, 4 gathers, weights, the chosen lanes marked and added up.
    """
    cases = [GATINGS["mixtral"]]
    layer = Layer(gating_text(cases), tmp_path, cores=1)
    (got,) = counts(layer, gating_inputs(np.random.default_rng(2), cases, 2), tmp_path)
    rows = 64
    assert got["V ArithProgression"] == rows + 1 + 1 + 3
    assert (got["V Sort32"], got["V Gather"], got.get("V MrgSort", 0)) == (1, 4, 0)
    assert (got["V Compare"], got["V CompareScalar"], got["V Select"]) == (3, 1, 2)
    assert (got["V Exp"], got["V WholeReduceMax"], got["V WholeReduceSum"]) == (1, 1, 2)
    assert (got["V And"], got["V Or"], got["V Copy"], got["V GatherMask"]) == (1, 1, 1, 2)
    assert (got["MTE2 DataCopyPad"], got["MTE3 DataCopyPad"]) == (1, 3)
