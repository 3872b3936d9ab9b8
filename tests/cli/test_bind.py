"""``moec bind``: cores near each NPU, none twice, the dispatching thread apart; clear refusals; a script that runs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moec.affinity.plan import bind, launch_script
from moec.affinity.topology import Topology, parse_cores, print_cores, read_topology, this_machine
from moec.diagnostics import Refusal
from tests.support.command import moec

ATLAS = Topology({n: tuple(range(24 * n, 24 * n + 24)) for n in range(8)}, {i: i for i in range(8)})
"""An Atlas 800T A2: 192 cores in 8 memory nodes, 8 NPUs."""


@given(st.sets(st.integers(0, 500)))
def test_a_list_of_cores_reads_back(cores: set[int]) -> None:
    assert parse_cores(print_cores(tuple(cores))) == tuple(sorted(cores))


def test_each_npu_gets_24_cores_of_its_own_node_by_default() -> None:
    plan = bind(ATLAS, 8)
    for b in plan:
        assert b.near and b.node == b.npu and set(b.cores) == set(ATLAS.nodes[b.npu])
        assert b.main not in b.rest


@given(st.integers(1, 6), st.integers(2, 9), st.integers(0, 3), st.lists(st.integers(-1, 2), min_size=6, max_size=6))
def test_no_core_serves_two_npus_nor_the_system(npus: int, cores: int, reserve: int, homes: list[int]) -> None:
    machine = Topology({n: tuple(range(20 * n, 20 * n + 20)) for n in range(3)}, dict(enumerate(homes)))
    try:
        plan = bind(machine, npus, cores, reserve)
    except Refusal as refused:
        assert "want" in str(refused)
        return
    taken = [c for b in plan for c in b.cores]
    assert len(taken) == len(set(taken)) == npus * cores
    for b in plan:
        assert set(b.cores) <= set(machine.nodes[b.node][reserve:])
        assert b.near is (None if homes[b.npu] == -1 else True)


def test_the_main_threads_sibling_is_left_idle() -> None:
    machine = Topology({0: tuple(range(8))}, {0: 0}, tuple((i, i + 4) for i in range(4)))
    (b,) = bind(machine, 1, 6)
    assert b.main == 0 and b.rest == (1, 5, 2, 6)


def test_a_node_with_too_few_cores_is_refused_with_what_would_fit() -> None:
    with pytest.raises(Refusal, match=r"node 0 has 24 cores, 4 of them reserved; NPUs 0-1 want 24 each, 48 in all"):
        bind(Topology({0: tuple(range(24))}, {0: 0, 1: 0}), 2, 24, 4)
    with pytest.raises(Refusal, match="--cores 10 or fewer"):
        bind(Topology({0: tuple(range(24))}, {0: 0, 1: 0}), 2, 24, 4)


def test_npus_whose_node_is_not_known_take_what_the_others_leave() -> None:
    plan = bind(Topology({0: tuple(range(48)), 1: tuple(range(48, 72))}, {0: -1, 1: 0, 2: 0}), 3)
    assert [(b.npu, b.node, b.near) for b in plan] == [(0, 1, None), (1, 0, True), (2, 0, True)]


def fake_sys(root: Path) -> Path:
    """A machine with two nodes and two cards as /sys shows it."""
    for node, cores in ((0, "0-3,8-11"), (1, "4-7,12-15")):
        folder = root / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cores + "\n")
    for core in range(16):
        folder = root / f"devices/system/cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 8},{core % 8 + 8}\n")
    for name, vendor, kind, node in (
        ("a", "0x19e5", "0x120000", 1),
        ("b", "0x19e5", "0x120000", 0),
        ("c", "0x8086", "0x020000", 0),
    ):
        folder = root / f"bus/pci/devices/{name}"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
        (folder / "numa_node").write_text(f"{node}\n")
    return root


def test_a_machine_is_read_as_its_kernel_shows_it(tmp_path: Path) -> None:
    machine = this_machine(fake_sys(tmp_path), frozenset(range(16)) - {11})
    assert machine.nodes == {0: (0, 1, 2, 3, 8, 9, 10), 1: (4, 5, 6, 7, 12, 13, 14, 15)}
    assert machine.npus == {0: 1, 1: 0} and (0, 8) in machine.siblings


def test_a_machine_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="tells nothing of its cores"):
        this_machine(tmp_path, frozenset({0}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot read the topology"),
        ("[]", "names no nodes"),
        ('{"nodes": {"0": "0-x"}}', "'0-x' is no core"),
        ('{"nodes": {"0": "5-1"}}', "'5-1' is no core"),
        ('{"nodes": {"0": "0-99999999"}}', "is no core"),
        ('{"nodes": {"0": "0-3", "1": "3-5"}}', "core 3 is of nodes 0 and 1"),
        ('{"nodes": {"0": "0-3"}, "npus": {"0": 7}}', "hangs on node 7"),
        ("[" * 100000, "cannot read the topology"),
        ('{"nodes": {"0": "0-' + "9" * 5000 + '"}}', "is no core"),
        ('{"nodes": {"0": "0-3", "00": "4-7"}}', "a number of its own"),
        ('{"nodes": {"-1": "0-3"}}', "a number of its own"),
        ('{"nodes": {"0": "0-3"}, "npus": [0]}', "npus is no table"),
        ('{"nodes": {"0": "0-3"}, "npus": {"²": 0}}', "NPU '²' is no number"),
        ('{"nodes": {"0": "0-3"}, "npus": {"0": false}}', "hangs on node False"),
        ('{"nodes": {"0": "0-3"}, "npus": {"4": 0, "5": 0}}', "numbered from 0"),
        ('{"nodes": {"0": "0-3"}, "siblings": 3}', "siblings is no list"),
        ('{"nodes": {"0": "0-3"}, "siblings": null}', "siblings is no list"),
    ],
)
def test_a_file_that_describes_no_machine_is_refused(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text(text)
    with pytest.raises(Refusal, match=words):
        read_topology(file)


def test_the_script_starts_the_program_once_for_each_npu_on_its_cores(tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        pytest.skip("one core cannot be divided")
    machine = tmp_path / "machine.json"
    machine.write_text(json.dumps({"nodes": {"0": print_cores(tuple(mine[:2]))}, "npus": {"0": 0}}))
    done = moec("bind", "--topology", machine, "--cores", "2", "-o", tmp_path / "out")
    assert done.returncode == 0 and "launch.sh" in done.stdout
    script = 'import os; print(sorted(os.sched_getaffinity(0)), os.environ["RANK"], os.environ["CPU_AFFINITY_CONF"])'
    ran = subprocess.run(
        [tmp_path / "out/launch.sh", "python3", "-c", script], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split("]")[0] + "]" == str(mine[:2]) and ran.stdout.split()[2] == "0"


def test_the_script_fails_where_a_rank_fails() -> None:
    plan = bind(Topology({0: (0, 1, 2, 3)}, {0: 0, 1: 0}), 2, 2)
    ran = subprocess.run(["sh", "-c", launch_script(plan), "launch.sh", "false"], check=False)
    assert ran.returncode != 0


def test_without_npus_the_command_says_what_to_give(tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    machine.write_text('{"nodes": {"0": "0-3"}}')
    done = moec("bind", "--topology", machine)
    assert done.returncode == 1 and "--npus" in done.stderr


@pytest.mark.parametrize("npus", [3, 1_000_000, 10**12])
def test_more_npus_than_the_machine_has_are_refused_in_a_line(npus: int, tmp_path: Path) -> None:
    file = tmp_path / "two.json"
    file.write_text('{"nodes": {"0": "0-95"}, "npus": {"0": 0, "1": 0}}')
    shown = moec("bind", "--topology", file, "--npus", str(npus))
    assert shown.returncode == 1 and "tells of 2" in shown.stderr and "--npus 2 or fewer" in shown.stderr
    file.write_text('{"nodes": {"0": "0-95"}}')
    shown = moec("bind", "--topology", file, "--npus", str(npus), "--cores", "60")
    assert shown.returncode == 1 and len(shown.stderr) < 300 and "fewer --npus" in shown.stderr
