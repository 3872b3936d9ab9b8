"""Which buffer holds which value of a vector program: liveness, then slots of equal size handed out first free first.

Inputs and outputs live in double buffers of their own. A result may take the place of an operand that dies with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moec.codegen.kernel_ir import ITEMSIZE
from moec.codegen.kernels.vector.values import Step, Val

Pool = tuple[str, int]
"""(form, bits an element): values of one pool share slots."""

NOT_IN_PLACE = frozenset({"Spread", "Brcb", "RowSum", "RowMax", "RowMin", "Compare", "CompareScalar", "Even", "Odd"})


def bits_of(v: Val) -> int:
    return 1 if v.dtype == "bits" else 8 * ITEMSIZE[v.dtype]


def pool_of(v: Val) -> Pool:
    return (v.form, bits_of(v))


@dataclass(frozen=True)
class Plan:
    """``slot`` of every value that needs one, the slots of each pool, and where each reduction keeps its lanes."""

    slot: Mapping[Val, int]
    scratch: Mapping[Step, int]
    slots: Mapping[Pool, int]


FOLD_POOL: Pool = ("lanes", 32)
"""64 lanes a row, where row reductions fold long rows."""


def make_plan(steps: Sequence[Step], fixed: frozenset[Val], keep: frozenset[Val], folds: bool) -> Plan:
    """Slots for the results of ``steps`` except those in ``fixed``; values in ``keep`` live to the end.

    ``folds``: row reductions need 64 lanes a row.
    """
    last = {v: i for i, s in enumerate(steps) for v in s.reads()}
    taken: dict[Pool, list[bool]] = {}
    slot: dict[Val, int] = {}
    scratch: dict[Step, int] = {}

    def take(pool: Pool) -> int:
        have = taken.setdefault(pool, [])
        for i, busy in enumerate(have):
            if not busy:
                have[i] = True
                return i
        have.append(True)
        return len(have) - 1

    for i, s in enumerate(steps):
        dying = [v for v in dict.fromkeys(s.reads()) if v in slot and last[v] == i and v not in keep and v not in fixed]
        reusable = [v for v in dying if pool_of(v) == pool_of(s.dst) and s.name not in NOT_IN_PLACE]
        if s.dst not in fixed:
            if reusable:
                slot[s.dst] = slot[reusable[0]]
                dying.remove(reusable[0])
            else:
                slot[s.dst] = take(pool_of(s.dst))
        if folds and s.name.startswith("Row"):
            scratch[s] = take(FOLD_POOL)
            taken[FOLD_POOL][scratch[s]] = False
        for v in dying:
            taken[pool_of(v)][slot[v]] = False
        if s.dst in slot and s.dst not in last and s.dst not in keep:
            taken[pool_of(s.dst)][slot[s.dst]] = False
    return Plan(slot, scratch, {p: len(b) for p, b in taken.items()})
