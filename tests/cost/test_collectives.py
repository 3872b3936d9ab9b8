"""Collectives against measurements, and what must hold of them whatever the links."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moec.targets.ascend.machine import load, machines
from moec.targets.ascend.opmodel.links import COLLECTIVES, collective_us

B1, B4 = load("ascend910b1"), load("ascend910b4")
MIB = 1 << 20

ALL_REDUCE = {1: 40.86, 2: 65.01, 4: 107.5, 6: 142.23, 8: 170.19, 16: 278.87, 32: 496.23, 64: 930.94}
"""Microseconds by MiB on the 8 cards of an A2 server (CANN asc-devkit documentation; the document's own fit)."""


@pytest.mark.parametrize("size", sorted(ALL_REDUCE))
def test_all_reduce_of_a_server(size: int) -> None:
    us = collective_us(B1, "all_reduce", size * MIB, 8, 8)
    assert us == pytest.approx(ALL_REDUCE[size], rel=0.10)


PAIRS = [
    ("send", 8388608, 401.7, 404.5),
    ("all_gather", 220233216, 11310.7, 12017.9),
    ("all_gather", 155582464, 7991.6, 8496.2),
    ("all_reduce", 622329856, 32653.4, 34623.9),
    ("reduce_scatter", 2 * 440466432, 23565.6, 26309.1),
    ("reduce_scatter", 2 * 311164928, 16645.6, 18589.1),
]
"""Two cards over one link of a profiled 910B4-class run: operation, bytes a rank puts in, microseconds on the link, and
in all with both cards there (Ascend-msinsight test data)."""


@pytest.mark.parametrize(("op", "size", "on_link", "elapsed"), PAIRS)
def test_pairs_of_cards(op: str, size: int, on_link: float, elapsed: float) -> None:
    us = collective_us(B4, op, size, 2, 8)
    assert us == pytest.approx(on_link, rel=0.11)
    assert us == pytest.approx(elapsed, rel=0.16)


def test_a_few_bytes_take_the_time_of_the_start() -> None:
    """8 bytes: 15.9 to 18.1 us with both cards there."""
    assert 15.0 < collective_us(B4, "all_reduce", 8, 2, 8) < 19.0


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(machines()),
    st.sampled_from(COLLECTIVES),
    st.integers(0, 1 << 30),
    st.integers(0, 1 << 28),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_more_bytes_take_no_less(name: str, op: str, size: int, more: int, local: int, nodes: int) -> None:
    machine = load(name)
    per_node = 1 << local
    ranks = per_node << nodes
    less, full = (collective_us(machine, op, b, ranks, per_node) for b in (size, size + more))
    assert 0 <= less <= full
    if ranks > 1 and op != "send":
        rate = max(machine["links.node.rate"], machine["links.cluster.rate"])
        assert full >= (size + more) * (ranks - 1) / ranks / rate * 1e6 / 2


def test_nodes_are_what_costs() -> None:
    inside = collective_us(B1, "all_to_all", 64 * MIB, 8, 8)
    across = collective_us(B1, "all_to_all", 64 * MIB, 16, 8)
    spread = collective_us(B1, "all_to_all", 64 * MIB, 16, 1)
    assert inside < across / 3 < spread
    third = load("ascend910_9391")
    assert collective_us(third, "all_to_all", 64 * MIB, 32, 16) < collective_us(B1, "all_to_all", 64 * MIB, 32, 8) / 3


def test_one_rank_exchanges_nothing() -> None:
    assert collective_us(B1, "all_reduce", MIB, 1, 8) == 0.0
