"""What the passes did to a layer, rule by rule: where each fired, and where it nearly did and why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moec.passes.base import Context, Pass, PassManager, Step
from moec.sizes import complete_sizes
from moec.sources import read
from moec.target import Target


@dataclass
class Entry:
    """One rule of one pass: how often it fired by place, and near-misses by reason and place."""

    spec: str
    rule: str
    applied: dict[str, int] = field(default_factory=dict)
    missed: dict[tuple[str, str], int] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """As plain data: ``pass``, ``rule``, ``fired`` and ``near_misses``, each place with its count."""
        return {
            "pass": self.spec,
            "rule": self.rule,
            "fired": [{"at": place, "times": n} for place, n in self.applied.items()],
            "near_misses": [{"reason": r, "at": place, "times": n} for (r, place), n in self.missed.items()],
        }


def explain(
    path: Path,
    passes: Sequence[Pass],
    target: Target | None,
    sizes: Mapping[str, int],
    stage: Callable[[str], AbstractContextManager[None]],
) -> list[Entry]:
    """Run ``passes`` on the layer in ``path``; one entry a rule that fired or nearly did, in order of the passes."""
    with stage(f"reading {path.name}"):
        loaded = read(path)
    tune = complete_sizes(loaded.module, {**loaded.tune, **sizes})
    steps = PassManager(passes).steps(loaded.module, Context(target, tune))
    entries: list[Entry] = []
    for each in passes:
        with stage(f"pass {each.name}"):
            entries += _entries(next(steps), f"{path.name}:")
    return entries


def _entries(step: Step, file: str) -> list[Entry]:
    """The entries of one pass; places do not repeat the name of the one ``file``."""
    found: dict[str, Entry] = {}
    spec = step.made_by.spec
    for a in step.result.applied:
        entry = found.setdefault(a.rule, Entry(spec, a.rule))
        place = str(a.origin).replace(file, "")
        entry.applied[place] = entry.applied.get(place, 0) + 1
    for m in step.result.near_misses:
        entry = found.setdefault(m.rule, Entry(spec, m.rule))
        key = m.reason, "; ".join(dict.fromkeys(str(n.origin).replace(file, "") for n in m.nodes))
        entry.missed[key] = entry.missed.get(key, 0) + 1
    return list(found.values())
