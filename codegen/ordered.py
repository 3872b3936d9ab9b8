"""Whether a program is ordered, and no more: what ``hazards.violations`` finds, for the many trials of ``sync``.

The same knowledge is followed, over the pipes that the program has; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moec.codegen.hazards import CROSS_DEPTH
from moec.codegen.kernel_ir import PIPES
from moec.codegen.traces import SCALAR, Step, senders

INSTR, SET, WAIT, BARRIER, CROSS_SET, CROSS_WAIT, ALL = range(7)
KINDS = {"instr": INSTR, "set": SET, "wait": WAIT, "barrier": BARRIER, "cross set": CROSS_SET,
         "cross wait": CROSS_WAIT, "all": ALL}  # fmt: skip

Code = tuple[int, int, int, int, Any, int, int]
"""Kind, pipe, its core's scalar unit (-1: it is that), position, what the kind needs, the pipe that a flag is for (-1:
a scalar unit), tag."""


def coded(program: Sequence[Step]) -> tuple[tuple[Code, ...], int]:
    """The steps with pipes numbered from 0 without gaps, and how many pipes there are."""
    per = len(PIPES)
    used = {step.pipe for step in program} | {q for step in program for q, *_ in step.needs}
    used |= {pipe for step in program if step.kind in ("set", "wait") for pipe in step.channel[:2]}
    used |= {pipe // per * per + SCALAR for pipe in used}
    number = {pipe: i for i, pipe in enumerate(sorted(used))}
    out: list[Code] = []
    for step in program:
        seat, own = divmod(step.pipe, per)
        scalar = -1 if own == SCALAR else number[seat * per + SCALAR]
        more: Any = None
        target = -1
        if step.kind == "instr":
            more = tuple([(number[q], need) for q, need, _ in step.needs])
        elif step.kind in ("set", "wait"):
            more = step.channel
            target = -1 if step.channel[1] % per == SCALAR else number[step.channel[1]]
        elif step.kind == "cross set":
            more = tuple([(seat, other, step.channel[2]) for other in senders(seat)])
        elif step.kind == "cross wait":
            more = tuple([(other, seat, step.channel[2]) for other in senders(seat)])
        elif step.kind == "all":
            more = tuple([number[p] for p in sorted(used) if p // per == seat])
        out.append((KINDS[step.kind], number[step.pipe], scalar, step.pos, more, target, step.tag))
    return tuple(out), len(number)


def ordered(program: Sequence[Code], pipes: int) -> bool:
    """Whether nothing in ``program`` is unordered."""
    known = [[-1] * pipes for _ in range(pipes)]
    moves, seen = [0] * pipes, [0] * pipes  # by scalar unit, by pipe
    sent: dict[tuple[int, int, int], list[list[int]]] = {}
    raised: dict[tuple[int, int, int], list[int]] = {}
    last_wait: dict[tuple[int, int, int], int] = {}
    for kind, pipe, scalar, pos, more, target, _ in program:
        mine = known[pipe]
        if scalar >= 0 and seen[pipe] < moves[scalar]:
            mine = known[pipe] = [x if x > y else y for x, y in zip(mine, known[scalar], strict=True)]
            seen[pipe] = moves[scalar]
        if kind == INSTR:
            for q, need in more:
                if mine[q] < need:
                    return False
        elif kind == SET:
            if more in raised or (target >= 0 and more in last_wait and mine[target] < last_wait[more]):
                return False
            snapshot = mine.copy()
            snapshot[pipe] = pos
            raised[more] = snapshot
        elif kind == WAIT:
            got = raised.pop(more, None)
            if got is None:
                return False
            known[pipe] = [x if x > y else y for x, y in zip(mine, got, strict=True)]
            last_wait[more] = pos
            if scalar < 0:
                moves[pipe] += 1
        elif kind == BARRIER:
            mine[pipe] = pos
        elif kind == CROSS_SET:
            snapshot = mine.copy()
            snapshot[pipe] = pos
            for channel in more:
                waiting = sent.setdefault(channel, [])
                waiting.append(snapshot)
                if len(waiting) > CROSS_DEPTH:
                    return False
        elif kind == CROSS_WAIT:
            for channel in more:
                if not sent.get(channel):
                    return False
                got = sent[channel].pop(0)
                mine = known[pipe] = [x if x > y else y for x, y in zip(mine, got, strict=True)]
            moves[pipe] += 1
        else:
            for p in more:
                for q in more:
                    known[p][q] = pos
    return not raised and not any(sent.values())
