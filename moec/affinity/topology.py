"""The cores, memory nodes and NPUs of a host: read from ``/sys``, or from a JSON file that describes another machine.

The file: ``{"nodes": {"0": "0-95", "1": "96-191"}, "npus": {"0": 0, "1": 1}, "siblings": ["0,96"]}``: core lists as
Linux prints them, the node that each NPU hangs on (-1 where it is not known), and, where a core runs several hardware
threads, which go together.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from moec.diagnostics import Problem, Refusal, Where

HUAWEI, ACCELERATORS = "0x19e5", "0x1200"
"""PCI vendor of Ascend cards, and the PCI class of processing accelerators (PCI code and ID assignment)."""

_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")
MOST_CPUS = 1 << 16


@dataclass(frozen=True)
class Topology:
    """Core numbers by memory node, the node of each NPU by number (-1: not known), and hardware threads by core."""

    nodes: dict[int, tuple[int, ...]]
    npus: dict[int, int]
    siblings: tuple[tuple[int, ...], ...] = ()

    @property
    def cores(self) -> tuple[int, ...]:
        """All cores, ascending."""
        return tuple(sorted(c for cores in self.nodes.values() for c in cores))


def parse_cores(text: str) -> tuple[int, ...]:
    """The cores that ``0-3,8`` names. ValueError for what is no such list."""
    cores: dict[int, None] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = _PART.match(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or last < first or last >= MOST_CPUS:
            raise ValueError(f"'{part}' is no core or range of cores")
        cores.update(dict.fromkeys(range(first, last + 1)))
    return tuple(cores)


def print_cores(cores: tuple[int, ...], comma: str = ",") -> str:
    """Cores as ``0-3,8``."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return comma.join(f"{a}-{b}" if b > a else str(a) for a, b in parts)


def this_machine(root: Path = Path("/sys"), allowed: frozenset[int] | None = None) -> Topology:
    """The machine that moec runs on; only cores that this process may use (``allowed``: those that the kernel says).
    Refusal where the kernel tells nothing.
    """
    if allowed is None:
        allowed = frozenset(os.sched_getaffinity(0))
    nodes: dict[int, tuple[int, ...]] = {}
    for folder in sorted((root / "devices/system/node").glob("node[0-9]*"), key=lambda p: int(p.name[4:])):
        cores = _read(folder / "cpulist")
        if cores:
            nodes[int(folder.name[4:])] = tuple(c for c in parse_cores(cores) if c in allowed)
    if not nodes:
        text = _read(root / "devices/system/cpu/online")
        if not text:
            todo = "describe the machine in a file and give it with --topology"
            raise Refusal("this system tells nothing of its cores", Where(str(root)), todo)
        nodes[0] = tuple(c for c in parse_cores(text) if c in allowed)
    groups: dict[tuple[int, ...], None] = {}
    for core in sorted(allowed):
        listed = _read(root / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        if listed:
            groups[tuple(sorted(parse_cores(listed)))] = None
    cards = []
    for device in sorted((root / "bus/pci/devices").glob("*")):
        if _read(device / "vendor") == HUAWEI and _read(device / "class").startswith(ACCELERATORS):
            cards.append(int(_read(device / "numa_node") or -1))
    return Topology(nodes, dict(enumerate(cards)), tuple(g for g in groups if len(g) > 1))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= len(str(MOST_CPUS))


def read_topology(path: Path) -> Topology:
    """The machine that a file describes. Refusal lists everything that is wrong with it."""
    where, todo = Where(str(path)), 'write {"nodes": {"0": "0-95"}, "npus": {"0": 0}}'
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(f"cannot read the topology: {error}", where, todo) from None
    if not isinstance(found, dict) or not isinstance(found.get("nodes"), dict) or not found["nodes"]:
        raise Refusal("the topology names no nodes", where, todo)
    problems: list[Problem] = []
    nodes: dict[int, tuple[int, ...]] = {}
    owner: dict[int, int] = {}
    for name, listed in found["nodes"].items():
        try:
            if not _is_number(name) or int(name) in nodes:
                raise ValueError("a node has a number of its own")
            nodes[int(name)] = parse_cores(str(listed))
        except ValueError as error:
            problems.append(Problem(f"node {name}: {error}", where, todo))
            continue
        for core in nodes[int(name)]:
            if owner.setdefault(core, int(name)) != int(name):
                problems.append(Problem(f"core {core} is of nodes {owner[core]} and {name}", where))
    npus: dict[int, int] = {}
    given, threads = found.get("npus", {}), found.get("siblings", [])
    if not isinstance(given, dict):
        problems.append(Problem("npus is no table of nodes by NPU", where, todo))
        given = {}
    for name, node in given.items():
        if not _is_number(name):
            problems.append(Problem(f"NPU '{name}' is no number", where, todo))
        elif type(node) is not int or (node != -1 and node not in nodes):
            problems.append(Problem(f"NPU {name} hangs on node {node}, which is none of {list(nodes)}", where, todo))
        else:
            npus[int(name)] = node
    if sorted(npus) != list(range(len(given))) and not problems:
        problems.append(Problem(f"NPUs {', '.join(map(str, npus))}: they are numbered from 0 on", where, todo))
    if not isinstance(threads, list):
        problems.append(Problem("siblings is no list", where, 'write "siblings": ["0,96"], or leave it out'))
        threads = []
    siblings = []
    for listed in threads:
        try:
            siblings.append(parse_cores(str(listed)))
        except ValueError as error:
            problems.append(Problem(f"siblings: {error}", where, todo))
    if problems:
        raise Refusal(problems)
    return Topology(nodes, npus, tuple(siblings))
