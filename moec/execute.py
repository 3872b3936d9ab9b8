"""Running an emitted project on the CPU model: arrays in, arrays out."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from moec import targets
from moec.arrays import Arrays
from moec.codegen import arrays as files
from moec.codegen.build import build, run
from moec.diagnostics import CheckFailed, Problem, Refusal, Where, suggest
from moec.ir.types import DType, dtype


class Project:
    """An emitted project: the folder that ``moec compile`` wrote, or its ``ascendc``. Refusal where it is neither."""

    def __init__(self, folder: Path):
        inner = folder / "ascendc"
        self.folder = inner if inner.is_dir() else folder
        self.manifest = _manifest(self.folder)
        self._program: Path | None = None

    @property
    def outputs(self) -> dict[str, DType]:
        """The layer's outputs with their dtypes, in order."""
        return {e["name"]: dtype(e["dtype"]) for e in self.manifest["outputs"]}

    def build(self, jobs: int | None = None) -> Path:
        """Compile it against the CPU model, once."""
        if self._program is None:
            model = Path(targets.__path__[0]) / "ascend" / "cpu"
            self._program = build(self.folder, model, jobs)
        return self._program

    def run(self, arrays: Arrays, environment: Mapping[str, str] | None = None) -> Arrays:
        """The outputs for inputs (and weights without data) by name. CheckFailed with the CPU model's message where it
        refuses an operation.
        """
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


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind in "fV"


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        return files.read_manifest(folder)
    except ValueError as error:
        raise Refusal(f"manifest.json is damaged: {error}", Where(str(folder)), "compile the layer again") from None
