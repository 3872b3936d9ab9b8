"""What the layer language means: golden texts of the IR that each construct becomes, with the warnings it gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_plugin import Golden

from moec.frontend.dsl import read_moe_text
from moec.ir.text import print_module
from moec.ops.verify import verify

CASES = sorted(p.stem.removeprefix("lowers_") for p in (Path(__file__).parent / "language").glob("lowers_*.txt"))


@pytest.mark.parametrize("case", CASES)
def test_lowers(case: str, golden: Golden) -> None:
    loaded = read_moe_text(golden.text, f"{case}.moe")
    verify(loaded.module)
    tune = "".join(f"# tune {name} = {size}\n" for name, size in loaded.tune.items())
    warnings = "".join(f"{w}\n" for w in loaded.warnings)
    golden(tune + print_module(loaded.module, origins=True) + warnings)
