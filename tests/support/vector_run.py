"""Layer IR texts lowered, built against the CPU model and run, beside the numpy reference in f32 and f64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
from ascend_run import Case, Masked, Project, built, mask_sites

from moec import eval as reference
from moec.codegen.arrays import read_manifest, sizes_of
from moec.codegen.capacities import Capacities
from moec.codegen.lower import lower_module
from moec.ir.text import parse_module

CARRIER = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
EPS = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
ORDERS = ("forward", "reverse", "random:11")


class Layer:
    """A module's main function as a built program for ``cores`` vector cores."""

    def __init__(self, text: str, folder: Path, cores: int = 3):
        self.module = parse_module(text)
        self.program = lower_module(self.module, Capacities(aic=2, aiv=cores), {})
        self.project: Project = built(self.program, folder)

    def run(self, arrays: Mapping[str, np.ndarray], **environment: str) -> dict[str, np.ndarray]:
        """Outputs of the CPU model, barriers checked; a refused run is an assertion."""
        sizes = sizes_of(read_manifest(self.project.folder), arrays)
        return self.project.outputs(arrays, sizes, **{"MOEC_CPU_STRICT": "1", **environment})

    def reference(self, arrays: Mapping[str, np.ndarray], fp64: bool = False) -> dict[str, np.ndarray]:
        return reference.run(self.module, arrays, fp64=fp64)

    def case(self, arrays: Mapping[str, np.ndarray]) -> Case:
        """A case for masking sites: the outputs of an undisturbed run are what must come out."""
        return Case(arrays, sizes_of(read_manifest(self.project.folder), arrays), self.run(arrays), atol=0.0)

    def mask(self, cases: Sequence[Mapping[str, np.ndarray]]) -> Masked:
        """Leaves out every site in turn."""
        return mask_sites(self.project, [self.case(c) for c in cases])


def numbers(rng: np.random.Generator, shape: Sequence[int], dtype: str, scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float32).astype(CARRIER[dtype])


def ulps(got: np.ndarray, exact: np.ndarray, dtype: str, least: float = 1e-30) -> float:
    """The largest error in units of the last place of ``dtype`` at the exact value (at ``least`` below it)."""
    if got.size == 0:
        return 0.0
    exact = np.asarray(exact, np.float64)
    size = np.maximum(np.abs(exact), least)
    unit = 2.0 ** np.floor(np.log2(size)) * EPS[dtype]
    error = np.abs(got.astype(np.float64) - exact)
    error = np.where(got.astype(np.float64) == exact, 0.0, error)
    return float(np.max(error / unit))
