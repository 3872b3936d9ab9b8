"""Running an emitted project on the CPU model: arrays in, arrays out."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from moec import targets
from moec.arrays import Arrays
from moec.codegen import arrays as files
from moec.codegen.build import STOPPED, build, run, run_ranks
from moec.diagnostics import CheckFailed, Problem, Refusal, Where, suggest
from moec.eval.ranks import part_of
from moec.ir.group import Group, Shard
from moec.ir.symbol import evaluate, parse_dim
from moec.ir.types import DType, dtype

MOST_RANKS = 64
"""Ranks that are still run side by side: each is a process of its own."""


class Project:
    """An emitted project: the folder that ``moec compile`` wrote, or its ``ascendc``. Refusal where it is neither."""

    def __init__(self, folder: Path):
        inner = folder / "ascendc"
        self.folder = inner if inner.is_dir() else folder
        self.manifest = _manifest(self.folder)
        self._program: Path | None = None

    @property
    def outputs(self) -> dict[str, DType]:
        """The layer's outputs with their dtypes, in order; where ranks run it, those of each rank."""
        own = {e["name"]: dtype(e["dtype"]) for e in self.manifest["outputs"]}
        if not self.groups:
            return own
        return {f"rank{rank}.{name}": t for rank in range(self.ranks({})) for name, t in own.items()}

    @property
    def groups(self) -> list[Group]:
        """The groups of ranks that the layer's collectives run over; none where it is one rank's alone."""
        given = self.manifest.get("groups", [])
        return [Group(g["name"], parse_dim(g["size"]), parse_dim(g["stride"])) for g in given]

    def ranks(self, sizes: Mapping[str, int]) -> int:
        """How many ranks run it: the least number that every group divides into whole sets."""
        return math.lcm(*(evaluate(g.extent, sizes) for g in self.groups))

    def build(self, jobs: int | None = None) -> Path:
        """Compile it against the CPU model, once."""
        if self._program is None:
            model = Path(targets.__path__[0]) / "ascend" / "cpu"
            self._program = build(self.folder, model, jobs)
        return self._program

    def run(self, arrays: Arrays, environment: Mapping[str, str] | None = None) -> Arrays:
        """The outputs for inputs (and weights without data) by name. CheckFailed with the CPU model's message where it
        refuses an operation.

        Where groups of ranks run the layer, all ranks run side by side. Input ``x`` of rank 3 is ``rank3.x``, else its
        part of ``x`` where that is sharded, else ``x``; outputs are named ``rank0.y``, ``rank1.y``, ...
        """
        if self.groups:
            return self._run_ranks(arrays, environment)
        given = self._fitting(arrays)
        sizes = files.sizes_of(self.manifest, given)
        self._within(sizes)
        program = self.build()
        with tempfile.TemporaryDirectory(prefix="moec-run-") as name:
            folder = Path(name)
            files.write_inputs(self.manifest, given, folder)
            done = run(program, self.folder, folder, sizes, environment)
            if done.returncode != 0:
                what = done.stderr.strip() or f"the program ended with code {done.returncode}"
                raise CheckFailed(Problem(what, todo=f"build it again and look: {self.folder}"))
            return files.read_outputs(self.manifest, sizes, folder)

    def _run_ranks(self, arrays: Arrays, environment: Mapping[str, str] | None) -> Arrays:
        count = self.ranks({})
        if count > MOST_RANKS:
            raise Refusal(
                f"{count} ranks would run side by side", todo=f"compile with smaller groups: up to {MOST_RANKS}"
            )
        given = [self._fitting(self._own(arrays, rank)) for rank in range(count)]
        sizes = [files.sizes_of(self.manifest, own) for own in given]
        for found in sizes:
            self._within(found)
        program = self.build()
        with tempfile.TemporaryDirectory(prefix="moec-run-") as name:
            folder = Path(name)
            for rank, own in enumerate(given):
                (folder / f"rank{rank}").mkdir()
                files.write_inputs(self.manifest, own, folder / f"rank{rank}")
            done = run_ranks(program, self.folder, folder, sizes, environment)
            failed = [(rank, d) for rank, d in enumerate(done) if d.returncode != 0]
            told = [(rank, d) for rank, d in failed if d.returncode != STOPPED] or failed
            problems = [
                Problem(f"rank {rank}: {d.stderr.strip() or f'the program ended with code {d.returncode}'}")
                for rank, d in told
            ]
            if problems:
                raise CheckFailed(problems)
            return {
                f"rank{rank}.{name}": array
                for rank in range(count)
                for name, array in files.read_outputs(self.manifest, sizes[rank], folder / f"rank{rank}").items()
            }

    def _own(self, arrays: Arrays, rank: int) -> Arrays:
        """What one rank gets of the arrays of all."""
        groups = {g.name: g for g in self.groups}
        own: Arrays = {}
        for entry in (*self.manifest["inputs"], *self.manifest["weights"]):
            name = entry["name"]
            shards = [Shard(groups[s["group"]], s["axis"]) for s in self.manifest["shards"] if s["name"] == name]
            array = part_of(name, arrays, rank, shards)
            if array is not None:
                own[name] = array
        return own

    def _fitting(self, arrays: Arrays) -> Arrays:
        """What the project reads, in the dtypes that it reads; Refusal lists what is missing."""
        needed = [*self.manifest["inputs"], *(w for w in self.manifest["weights"] if w["offset"] is None)]
        problems: list[Problem] = []
        given: Arrays = {}
        for entry in needed:
            name, wanted = entry["name"], dtype(entry["dtype"])
            if name not in arrays:
                hint = suggest(name, arrays) or f"given are: {', '.join(sorted(arrays)) or 'none'}"
                problems.append(
                    Problem(f"input '{name}' ({entry['dtype']}[{', '.join(entry['shape'])}]) is missing", todo=hint)
                )
            elif wanted.is_float != _is_float(arrays[name]):
                problems.append(Problem(f"input '{name}' is {arrays[name].dtype}, {wanted} is wanted"))
            else:
                given[name] = arrays[name].astype(wanted.carrier, copy=False)
        if problems:
            raise Refusal(problems)
        return given

    def _within(self, sizes: Mapping[str, int]) -> None:
        bounds = self.manifest["symbols"]
        outside = [
            Problem(
                f"{name} = {n} is outside [{bounds[name][0]}, {bounds[name][1]}]", todo="give inputs within the bounds"
            )
            for name, n in sizes.items()
            if not bounds[name][0] <= n <= bounds[name][1]
        ]
        if outside:
            raise Refusal(outside)


def reference_of(folder: Path, inputs: Path) -> Callable[[Arrays], Arrays]:
    """The layer that an output folder of ``moec compile`` was lowered from, in numpy, every rank of it. Refusal where
    the folder has no IR. ``inputs`` is the file that arrays come from, for messages.
    """
    from moec import eval as reference
    from moec.inputs import divide
    from moec.sources import read

    texts = sorted((folder / "ir").glob("*.mir"))
    if not texts:
        raise Refusal(f"{folder} holds no ir/*.mir", todo="give the folder that 'moec compile' wrote, not its ascendc")
    module = read(texts[-1]).module

    def run_reference(arrays: Arrays) -> Arrays:
        given, weights = divide(module, arrays, {}, inputs)
        return reference.run(module, given, weights)

    return run_reference


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind in "fV"


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        return files.read_manifest(folder)
    except ValueError as error:
        raise Refusal(f"manifest.json is damaged: {error}", Where(str(folder)), "compile the layer again") from None
