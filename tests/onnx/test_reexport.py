"""Real exports, imported and written again as they came or after the default passes, give their stored numbers in
onnxruntime, at both input sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reexport import differences

from moec.passes.base import DEFAULT_PIPELINE

DATA = Path(__file__).parent.parent / "data"
FOLDERS = (DATA, DATA / "layers")
SAMPLE = [(folder, record) for folder in FOLDERS for record in json.loads((folder / "index.json").read_text())]
PARTS = 8
"""Pieces that the corpus is tested in, so that several workers share it."""


@pytest.mark.parametrize("passes", ["", DEFAULT_PIPELINE], ids=["as imported", "optimised"])
@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case[1]["name"])
def test_sample(case: tuple[Path, dict[str, Any]], passes: str, tmp_path: Path) -> None:
    assert differences(*case, tmp_path, passes) == []


@pytest.mark.parametrize(
    "passes",
    [pytest.param("", marks=pytest.mark.slow, id="as imported"), pytest.param(DEFAULT_PIPELINE, id="optimised")],
)
@pytest.mark.parametrize("part", range(PARTS))
def test_corpus(corpus: Any, part: int, passes: str, tmp_path: Path) -> None:
    records = corpus.records()[part::PARTS]
    found = {r["name"]: differences(corpus.folder, r, tmp_path, passes) for r in records}
    assert {name: lines for name, lines in found.items() if lines} == {}
