"""The same bytes under any hash seed: texts of layers read from the language, and of refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import hashlib, sys
from pathlib import Path
from moec.diagnostics import Refusal
from moec.frontend.dsl import read_moe_text
from moec.ir.text import parse_module, print_module
for path in sorted(Path(sys.argv[1]).rglob("*.moe")) + sorted(Path(sys.argv[1]).rglob("tests/dsl/*/*.txt")):
    try:
        loaded = read_moe_text(path.read_text().split("==== expected")[0], path.name)
        text = print_module(loaded.module, origins=True)
        print(text, print_module(parse_module(text)), *loaded.warnings, loaded.tune, sep="\\n")
    except Refusal as refusal:
        print(refusal)
"""


def _output(seed: str) -> bytes:
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", PROGRAM, str(ROOT)], env=env, capture_output=True, check=True).stdout


def test_same_bytes_under_several_hash_seeds() -> None:
    first = _output("0")
    assert len(first) > 10_000
    assert all(_output(seed) == first for seed in ("1", "31337"))
