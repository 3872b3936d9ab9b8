"""A choice by repeatedly dropping or swapping what adds least time per byte: the fast one, for sweeps."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from moec.memory.plan import Choice, everything_kept
from moec.memory.problem import RECOMPUTE, SWAP, Problem


def held(problem: Problem, choice: Choice) -> int:
    """Bytes that all chunks in flight keep."""
    return problem.in_flight * sum(problem.tensors[v].bytes for v in choice.kept)


def greedy(problem: Problem, limit: int, start: Choice | None = None) -> Choice | None:
    """The choice, from ``start`` on (everything kept where that is None); None where that does not come down to
    ``limit`` bytes kept. What a move costs is asked again only when its turn comes.
    """
    choice = start or everything_kept(problem)
    room = problem.forward_us - sum(problem.copy_us(v) for v in choice.swapped)
    queue = [m for v in sorted(choice.kept) for m in _moves(problem, choice, v, room)]
    heapify(queue)
    kept = held(problem, choice)
    while kept > limit:
        if not queue:
            return None
        was, v, how = heappop(queue)
        if v not in choice.kept:
            continue
        now = next((m for m in _moves(problem, choice, v, room) if m[2] == how), None)
        if now is None:
            continue
        if now[0] > was and queue and now > queue[0]:
            heappush(queue, now)
            continue
        made = _moved(problem, choice, v, how)
        assert made is not None
        room -= problem.copy_us(v) if how == SWAP else 0.0
        kept -= problem.in_flight * problem.tensors[v].bytes
        choice = made
    return choice


def _moves(problem: Problem, choice: Choice, v: int, room: float) -> list[tuple[float, int, str]]:
    """Ways to stop keeping ``v``: (microseconds a byte, tensor, how). ``room`` is what the copy stream has left."""
    size = problem.tensors[v].bytes
    moves = []
    dropped = _moved(problem, choice, v, RECOMPUTE)
    if dropped is not None:
        moves.append((sum(problem.forward[n].us for n in dropped.again - choice.again) / max(size, 1), v, RECOMPUTE))
    on_host = problem.in_flight * (size + sum(problem.tensors[w].bytes for w in choice.swapped))
    if problem.pcie > 0 and on_host <= problem.host_bytes:
        exposed = max(0.0, problem.copy_us(v) - max(room, 0.0))
        moves.append((exposed / max(size, 1), v, SWAP))
    return moves


def _moved(problem: Problem, choice: Choice, v: int, how: str) -> Choice | None:
    """``choice`` with ``v`` swapped or recomputed; None where it may not be."""
    kept = choice.kept - {v}
    if how == SWAP:
        return Choice(kept, choice.swapped | {v}, choice.again)
    return _completed(problem, Choice(kept, choice.swapped, choice.again), v)


def _completed(problem: Problem, choice: Choice, v: int) -> Choice | None:
    """``choice`` with every step that must run again so that ``v`` is there for whoever reads it; None where one may
    not.
    """
    if v not in problem.needed and not any(v in problem.forward[n].reads for n in choice.again):
        return choice
    again = set(choice.again)
    stays = choice.kept | choice.swapped
    stack = [v]
    while stack:
        w = stack.pop()
        n = problem.producer.get(w)
        if n is None or w in stays or n in again:
            continue
        if n not in problem.recomputable:
            return None
        again.add(n)
        stack += problem.forward[n].reads
    return Choice(choice.kept, choice.swapped, frozenset(again))
