"""What ``moec compile --train`` is told about memory, as the passes that decide what stays."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import typer

from moec.diagnostics import Problem, Usage
from moec.memory.pipeline import MOST_IN_FLIGHT, parse_pipeline

_UNITS = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12} | {
    f"{p}iB": 1024.0**i for i, p in enumerate("KMGT", start=1)
}
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMGT]i?B|B)(/s)?\Z")

_OF_BUDGET = {
    "pcie": "--pcie",
    "host_memory": "--host-memory",
    "in_flight": "--in-flight",
    "layers": "--layers",
    "shards": "--optimizer-shards",
    "exchanges": "--recompute-exchanges",
    "pipeline": "--pipeline",
    "stage": "--stage",
}
"""Options that only a plan reads, by field."""

Recompute = Annotated[
    str | None,
    typer.Option(
        "--recompute",
        metavar="KIND,...",
        help="With --train: saved values to compute again instead of keeping them: act, norm, mla_up, permute, "
        "dispatch and gathered (collectives run again), all, or names of saves.",
        show_default=False,
    ),
]
Swap = Annotated[
    str | None,
    typer.Option(
        "--swap",
        metavar="KIND,...",
        help="With --train: saved values to park on the host in between, named as for --recompute.",
        show_default=False,
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="SIZE",
        help="With --train: plan what is kept, computed again and parked so that the card's peak stays within SIZE.",
        show_default=False,
    ),
]
Pcie = Annotated[str, typer.Option("--pcie", metavar="RATE", help="With --budget: card to host, each way.")]
HostMemory = Annotated[
    str, typer.Option("--host-memory", metavar="SIZE", help="With --budget: host memory for this card.")
]
InFlight = Annotated[
    int,
    typer.Option(
        "--in-flight",
        metavar="N",
        min=1,
        help="With --budget: forwards of this layer that wait for their backward at once.",
    ),
]
Layers = Annotated[
    int, typer.Option("--layers", metavar="N", min=1, help="With --budget: layers like this one that the card holds.")
]
Shards = Annotated[
    int,
    typer.Option("--optimizer-shards", metavar="N", min=1, help="With --budget: ranks that share optimizer state."),
]
Pipelined = Annotated[
    str | None,
    typer.Option(
        "--pipeline",
        metavar="STAGES,CHUNKS,LAYERS",
        help="With --budget, instead of --in-flight and --layers: interleaved 1F1B of so many stages, chunks a stage "
        "and layers a chunk.",
        show_default=False,
    ),
]
Stage = Annotated[int, typer.Option("--stage", metavar="N", min=0, help="With --pipeline: the stage that is planned.")]
Exchanges = Annotated[
    bool,
    typer.Option(
        "--recompute-exchanges",
        help="With --budget: what ranks exchanged or gathered may be exchanged again in backward, where that is "
        "cheapest.",
    ),
]


@dataclass(frozen=True)
class Memory:
    """The options as given."""

    recompute: str | None
    swap: str | None
    budget: str | None = None
    pcie: str = "25GB/s"
    host_memory: str = "192GiB"
    in_flight: int = 1
    layers: int = 1
    shards: int = 1
    exchanges: bool = False
    pipeline: str | None = None
    stage: int = 0
    operators: bool = False
    """Whether operators of CANN's library may run."""

    def passes(self, train: bool, replaced: bool) -> str:
        """The passes, joined by commas. Usage where they are not of a training pipeline (``replaced``: the user gives
        passes of their own), a quantity is none, or choices by hand and by plan meet.
        """
        given = {"--recompute": self.recompute, "--swap": self.swap, "--budget": self.budget}
        named = [name for name, value in given.items() if value is not None]
        if named and (not train or replaced):
            todo = "add --train" if not train else "put recompute, swap or plan-memory among the passes"
            raise Usage(f"{', '.join(named)} {'with --passes' if train else 'without --train'}", todo=todo)
        if self.budget is not None and len(named) > 1:
            raise Usage(f"{', '.join(named)} together", todo="let --budget choose, or choose by hand")
        if self.budget is not None:
            return self.plan(self.budget)
        default = Memory(None, None)
        idle = [name for field, name in _OF_BUDGET.items() if getattr(self, field) != getattr(default, field)]
        if idle:
            raise Usage(f"{', '.join(idle)} without --budget", todo="add --budget SIZE")
        by_hand = (("recompute", self.recompute), ("swap", self.swap))
        return ",".join(f"{name}{{what={what.replace(',', '+')}}}" for name, what in by_hand if what)

    def plan(self, budget: str) -> str:
        """The pass. Usage where a quantity is none."""
        problems: list[Problem] = []
        gib = _quantity("--budget", budget, False, problems) / 2**30
        if not gib and not problems:
            problems.append(Problem("--budget of nothing", todo="write 64GiB or 1.5TiB"))
        rate = _quantity("--pcie", self.pcie, True, problems) / 1e9
        host = _quantity("--host-memory", self.host_memory, False, problems) / 2**30
        in_flight, layers = self.in_flight, self.layers
        if self.pipeline is None and self.stage:
            problems.append(Problem("--stage without --pipeline", todo="add --pipeline STAGES,CHUNKS,LAYERS"))
        if self.pipeline is not None:
            if (in_flight, layers) != (1, 1):
                problems.append(Problem("--pipeline together with --in-flight or --layers", todo="give one of them"))
            else:
                pipeline = parse_pipeline(self.pipeline, self.stage)
                in_flight, layers = pipeline.in_flight, pipeline.held
        if in_flight > MOST_IN_FLIGHT:
            what = f"{in_flight} forwards in flight; a plan is replayed for {MOST_IN_FLIGHT} at most"
            problems.append(Problem(what, todo="give fewer, by --in-flight or --pipeline"))
        if problems:
            raise Usage(problems)
        return (
            f"plan-memory{{budget={gib!r},pcie={rate!r},host={host!r},in_flight={in_flight},"
            f"layers={layers},shards={self.shards}"
            + (",exchanges=true" if self.exchanges else "")
            + (",operators=true}" if self.operators else "}")
        )


def _quantity(option: str, text: str, rate: bool, problems: list[Problem]) -> float:
    """Bytes, or bytes a second, that ``text`` says."""
    match = _QUANTITY.match(text)
    if match is None or bool(match[3]) != rate:
        todo = "write 25GB/s" if rate else "write 64GiB or 1.5TiB"
        problems.append(Problem(f"{option}: '{text}' is no {'rate' if rate else 'size'}", todo=todo))
        return 0.0
    return float(match[1]) * _UNITS[match[2]]
