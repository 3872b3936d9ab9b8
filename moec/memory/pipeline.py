"""How many forwards wait for their backward on a stage of a pipeline."""

from __future__ import annotations

import re
from dataclasses import dataclass

from moec.diagnostics import Usage

MOST_IN_FLIGHT = 1024
"""Most forwards in flight: a plan whose copies fall behind is replayed for each. 64 stages of 4 chunks of 2 layers have
638 of them."""


@dataclass(frozen=True)
class Pipeline:
    """Interleaved 1F1B: ``stages`` cards, each with ``chunks`` parts of the model of ``layers`` layers, seen from
    ``stage`` (0: the first). With one chunk a stage it is plain 1F1B. Usage for what is none.
    """

    stages: int
    chunks: int
    layers: int
    stage: int = 0

    def __post_init__(self) -> None:
        if min(self.stages, self.chunks, self.layers) < 1 or not 0 <= self.stage < self.stages:
            raise Usage(
                f"no pipeline: {self.stages} stages of {self.chunks} chunks of {self.layers} layers, seen from stage "
                f"{self.stage}",
                todo="write --pipeline 16,2,2 --stage 0; stages count from 0",
            )

    @property
    def in_flight(self) -> int:
        """Forwards of a layer, of all micro-batches and chunks, that wait for their backward at once: what has run
        before the first backward (Megatron-LM's schedule: two for each stage behind this one, interleaved with a round
        of all stages for each further chunk), and the one that is then in turn.
        """
        behind = self.stages - 1 - self.stage
        warm_up = behind if self.chunks == 1 else 2 * behind + (self.chunks - 1) * self.stages
        return (warm_up + 1) * self.layers

    @property
    def held(self) -> int:
        """Layers that the card holds."""
        return self.chunks * self.layers


def parse_pipeline(text: str, stage: int) -> Pipeline:
    """``16,2,2``: stages, chunks a stage, layers a chunk."""
    parts = text.split(",")
    if len(parts) != 3 or not all(re.fullmatch("[0-9]{1,9}", p.strip()) for p in parts):
        raise Usage(f"--pipeline: '{text}' is not STAGES,CHUNKS,LAYERS", todo="write --pipeline 16,2,2")
    stages, chunks, layers = map(int, parts)
    return Pipeline(stages, chunks, layers, stage)
