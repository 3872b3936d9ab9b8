"""The bank-conflict table of UB: within 15 per cent."""

from __future__ import annotations

import pytest
from published_tables import BANKS, Row, modelled

from moec.targets.ascend.machine import load

B1 = load("ascend910b1")


@pytest.mark.parametrize("row", BANKS, ids=lambda r: r.name)
def test_scenarios(row: Row) -> None:
    assert abs(modelled(row, B1) / row.measured - 1) < 0.15
