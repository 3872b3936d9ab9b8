"""The affinity plan: cores near each NPU, the first for the thread that launches, the others for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from moec.affinity.topology import Topology, print_cores
from moec.diagnostics import Problem, Refusal

CORES_PER_NPU = 24
"""What Pangu Ultra MoE's training binds to an NPU (arXiv 2505.04519)."""


@dataclass(frozen=True)
class Binding:
    """The cores of one NPU: ``main`` for the dispatching thread alone, ``rest`` for all other threads; ``node`` is the
    memory node that they belong to, ``near`` whether the NPU hangs on it (None: not known).
    """

    npu: int
    node: int
    main: int
    rest: tuple[int, ...]
    near: bool | None

    @property
    def cores(self) -> tuple[int, ...]:
        """All its cores."""
        return (self.main, *self.rest)


def bind(topology: Topology, npus: int, cores: int = CORES_PER_NPU, reserve: int = 0) -> list[Binding]:
    """Cores for ``npus`` NPUs, ``cores`` each, none twice; ``reserve`` cores of each node stay free for the system.

    An NPU gets cores of its own node; one whose node is not known, of the node with most left. Where a core runs
    several hardware threads, threads of one core stay together, and the main thread's sibling is left idle. Refusal
    names every node that has too few.
    """
    if npus < 1 or cores < 2:
        raise Refusal(f"{npus} NPUs with {cores} cores each", todo="at least one NPU, and two cores: one dispatches")
    if npus > len(topology.cores):
        what = f"{npus} NPUs with {cores} cores each, on a machine of {len(topology.cores)} cores"
        raise Refusal(what, todo="give fewer --npus")
    free = {node: _by_core(topology, found)[reserve:] for node, found in topology.nodes.items()}
    known = {npu: topology.npus[npu] for npu in range(npus) if topology.npus.get(npu, -1) in free}
    homes: dict[int, int] = {}
    room = {node: len(found) for node, found in free.items()}
    for npu in sorted(range(npus), key=lambda n: n not in known):
        homes[npu] = known[npu] if npu in known else max(room, key=lambda n: (room[n], -n))
        room[homes[npu]] -= cores
    short = {node: left for node, left in room.items() if left < 0}
    if short:
        raise Refusal([_short(topology, homes, node, cores, reserve) for node in sorted(short)])
    plan = []
    for npu in range(npus):
        node = homes[npu]
        taken, free[node] = free[node][:cores], free[node][cores:]
        near = node == topology.npus[npu] if topology.npus.get(npu, -1) in topology.nodes else None
        plan.append(_binding(topology, npu, node, taken, near))
    return plan


def _by_core(topology: Topology, cores: tuple[int, ...]) -> list[int]:
    """Cores with hardware threads of one core side by side, in order of their first thread."""
    first = {c: min(group) for group in topology.siblings for c in group}
    return sorted(cores, key=lambda c: (first.get(c, c), c))


def _short(topology: Topology, homes: dict[int, int], node: int, cores: int, reserve: int) -> Problem:
    wanting = sorted(npu for npu, home in homes.items() if home == node)
    have = len(topology.nodes[node])
    fits = (have - reserve) // len(wanting)
    kept = f", {reserve} of them reserved" if reserve else ""
    what = (
        f"node {node} has {have} cores{kept}; NPUs {print_cores(tuple(wanting), ', ')} want {cores} each, "
        f"{cores * len(wanting)} in all"
    )
    todo = f"give --cores {fits} or fewer, or fewer --npus" if fits >= 2 else "give fewer --npus"
    return Problem(what, todo=todo)


def _binding(topology: Topology, npu: int, node: int, taken: list[int], near: bool | None) -> Binding:
    main = taken[0]
    idle = {c for group in topology.siblings if main in group for c in group if c != main}
    return Binding(npu, node, main, tuple(c for c in taken[1:] if c not in idle), near)


def as_json(plan: list[Binding]) -> list[dict[str, object]]:
    """The plan as plain data."""
    return [{"npu": b.npu, "node": b.node, "main": b.main, "rest": print_cores(b.rest), "near": b.near} for b in plan]


def launch_script(plan: list[Binding]) -> str:
    """A shell script that starts its arguments once for each NPU, bound as planned.

    ``taskset`` keeps each process on its cores; the frameworks' own switch (``CPU_AFFINITY_CONF``, mode 2: main threads
    apart; MindStudio, core binding) puts the dispatching thread on the first of them.
    """
    whole = ",".join(f"npu{b.npu}:{b.main}-{max(b.cores)}" for b in plan if _is_range(b))
    lines = [
        "#!/bin/sh",
        "# Starts a program once for each NPU, on the cores near it: launch.sh python train.py ...",
        "# Written by moec bind.",
        "set -eu",
        '[ "$#" -gt 0 ] || { echo "usage: launch.sh PROGRAM ARGUMENT..." >&2; exit 2; }',
        "command -v taskset >/dev/null || { echo 'launch.sh: taskset (util-linux) is missing' >&2; exit 1; }",
        f'export WORLD_SIZE="${{WORLD_SIZE:-{len(plan)}}}"',
        f"export CPU_AFFINITY_CONF=2{',' + whole if whole else ''}",
        'first="${RANK_OFFSET:-0}"',
        "pids=",
        "trap 'kill $pids 2>/dev/null' INT TERM",
    ]
    for b in plan:
        lines.append(
            f"LOCAL_RANK={b.npu} RANK=$((first + {b.npu})) ASCEND_DEVICE_ID={b.npu} "
            f'taskset -c {print_cores(b.cores)} "$@" & pids="$pids $!"  # node {b.node}, dispatches on {b.main}'
        )
    lines += ["status=0", 'for pid in $pids; do wait "$pid" || status=$?; done', 'exit "$status"']
    return "\n".join(lines) + "\n"


def _is_range(b: Binding) -> bool:
    """Whether the cores are one range, as ``CPU_AFFINITY_CONF`` takes it."""
    return sorted(b.cores) == list(range(min(b.cores), max(b.cores) + 1)) and b.main == min(b.cores)
