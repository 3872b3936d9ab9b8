"""What the passes did to a layer, rule by rule: where each fired, and where it nearly did and why not.

A pass that runs several times is one pass here: what it did adds up, and what it nearly did is what was left after its
last run. A near miss of a rule that fired at the same nodes later on is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moec.autodiff.sweep import NAME as AUTODIFF
from moec.ir.graph import Module, Origin, Source
from moec.passes.base import Context, Pass, PassManager
from moec.sources import read
from moec.target import Target

SHOWN = 3
"""Nodes of a place that its text names."""


@dataclass(frozen=True)
class Place:
    """Where in the input a rewrite was done or not: the ``sources`` of the nodes, the telling one first."""

    sources: tuple[Source, ...]
    file: str = ""
    """The one input, whose name is not repeated."""
    function: str = ""
    """The function that they stand in, unless that is the layer itself."""
    calls: tuple[int, ...] = ()
    """Where that function is called; an input's layers that are alike are one function, and the sources of one copy."""
    backward: bool = False
    """Whether they were made by differentiation."""

    def __str__(self) -> str:
        named = [str(s).removeprefix(f"{self.file}:") for s in self.sources]
        more = len(named) - SHOWN
        text = "; ".join(named[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
        notes = [*(["backward"] if self.backward else []), *([self._called()] if self.calls else [])]
        return text + (f" ({', '.join(notes)})" if notes and text else "")

    def _called(self) -> str:
        more = len(self.calls) - SHOWN
        at = ", ".join(map(str, self.calls[:SHOWN])) + (f" and {more} more" if more > 0 else "")
        return f"in {self.function}, copies at {at}" if len(self.calls) > 1 else f"in {self.function}"

    def lines(self) -> list[int]:
        """Line numbers or node indices in the input, in order."""
        return sorted({s.line for s in self.sources if s.file == self.file})


@dataclass
class Entry:
    """One rule of one pass: how often it fired by place, and near misses by reason and place."""

    spec: str
    rule: str
    applied: dict[Place, int] = field(default_factory=dict)
    missed: dict[str, dict[Place, int]] = field(default_factory=dict)

    @property
    def fired(self) -> int:
        """How often it fired."""
        return sum(self.applied.values())

    @property
    def near_misses(self) -> int:
        """At how many places it nearly fired."""
        return sum(map(len, self.missed.values()))

    def json(self) -> dict[str, Any]:
        """As plain data: ``pass``, ``rule``, ``fired`` and ``near_misses``, each place with its count, the line
        numbers or node indices in the input that it covers, and those where the function that it stands in is called.
        """
        return {
            "pass": self.spec,
            "rule": self.rule,
            "fired": [_place(place, n) for place, n in self.applied.items()],
            "near_misses": [
                {"reason": reason, **_place(place, n)} for reason, at in self.missed.items() for place, n in at.items()
            ],
        }


def _place(place: Place, times: int) -> dict[str, Any]:
    found = {"at": str(place), "lines": place.lines(), "backward": place.backward, "times": times}
    return found | ({"called_at": list(place.calls)} if place.calls else {})


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
    tune = loaded.sizes(sizes)
    places = _Places(loaded.module, path)
    steps = PassManager(passes).steps(loaded.module, Context(target, tune))
    entries: dict[tuple[str, str], Entry] = {}
    for each in passes:
        with stage(f"pass {each.name}"):
            result = next(steps).result
        for (spec, _), entry in entries.items():
            if spec == each.spec:
                entry.missed.clear()
        for a in result.applied:
            entry = entries.setdefault((each.spec, a.rule), Entry(each.spec, a.rule))
            place = places.of([a.origin], a.function)
            entry.applied[place] = entry.applied.get(place, 0) + 1
            _settle(entries.values(), a.rule, place)
        for m in result.near_misses:
            entry = entries.setdefault((each.spec, m.rule), Entry(each.spec, m.rule))
            at = entry.missed.setdefault(places.shorten(m.reason), {})
            place = places.of([n.origin for n in m.nodes], m.function)
            at[place] = at.get(place, 0) + 1
    return [e for e in entries.values() if e.applied or e.missed]


def _settle(entries: Iterable[Entry], rule: str, fired: Place) -> None:
    """Forget near misses of ``rule`` at nodes where it has now ``fired``."""
    covered = set(fired.sources)
    for entry in entries:
        if entry.rule == rule:
            for at in entry.missed.values():
                for place in [p for p in at if p.sources and covered.issuperset(p.sources)]:
                    del at[place]
            for reason in [r for r, at in entry.missed.items() if not at]:
                del entry.missed[reason]


class _Places:
    """Places of one module as it was read."""

    def __init__(self, module: Module, path: Path):
        sources = (s for n in module.nodes() for s in n.origin.sources)
        self.file = next((s.file for s in sources if Path(s.file).name == path.name), path.name)
        self.calls: dict[str, tuple[int, ...]] = {}
        for node in module.nodes():
            if node.op == "call" and node.origin.sources:
                name = node.attrs["fn"]
                self.calls[name] = (*self.calls.get(name, ()), node.origin.sources[0].line)

    def of(self, origins: Sequence[Origin], function: str) -> Place:
        """The place of nodes of these origins."""
        sources = tuple(dict.fromkeys(s for o in origins for s in o.sources))
        backward = bool(origins) and all(AUTODIFF in o.rewrites for o in origins)
        return Place(sources, self.file, function, self.calls.get(function, ()), backward)

    def shorten(self, reason: str) -> str:
        """A reason without the name of the one file before each place."""
        return reason.replace(f"{self.file}:", "")
