"""What the layer language refuses: golden texts of every message, all problems of a file at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_plugin import Golden

from moec.diagnostics import Refusal
from moec.frontend.dsl import parse_moe

CASES = sorted(p.stem.removeprefix("refuses_") for p in (Path(__file__).parent / "errors").glob("refuses_*.txt"))


@pytest.mark.parametrize("case", CASES)
def test_refuses(case: str, golden: Golden) -> None:
    with pytest.raises(Refusal) as refused:
        parse_moe(golden.text, f"{case}.moe")
    golden("\n".join(map(str, refused.value.problems)))
