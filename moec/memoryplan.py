"""The memory plan of a layer's training: what ``moec memory`` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from moec import sources
from moec.diagnostics import Usage
from moec.passes.base import Context, PassManager, train_passes
from moec.passes.plan_memory import PlanMemory
from moec.passes.plan_memory_drops import choose_drops
from moec.target import Target


def planned(
    file: Path,
    given: Mapping[str, int],
    target: Target,
    memory: str,
    stage: Callable[[str], AbstractContextManager[None]],
) -> dict[str, Any]:
    """The summary's ``memory`` of a layer, without its kernels; ``memory`` is the plan-memory pass as text. Usage where
    it is another.
    """
    with stage(f"reading {file.name}"):
        loaded = sources.read(file)
    module = loaded.module
    context = Context(target, loaded.sizes(given))
    chosen = train_passes("", memory)
    with stage("planning with and without dropping"):
        chosen, drops = choose_drops(module, chosen, context)
    at = next((i for i, p in enumerate(chosen) if isinstance(p, PlanMemory)), None)
    if at is None:
        raise Usage(f"'{memory}' plans no memory")
    with stage("planning"):
        result = PassManager(chosen[: at + 1]).run(module, context)[-1].result
    assert result.memory is not None
    return drops.told(result.memory) if drops is not None else result.memory
