"""Faults in kernels as they show in runs on the CPU model: refused, or other bytes than without the fault.

A program is built once; each fault is a site that the model leaves out at run time.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from ascend_run import CPU, TEMPLATES
from injection import Site

from moec.codegen.arrays import read_manifest, sizes_of, write_inputs
from moec.codegen.build import build
from moec.codegen.program import Program
from moec.codegen.project import write_project

Arrays = Mapping[str, np.ndarray]
ORDERS = ("forward", "reverse", "random:7")
MESSAGE = re.compile(r"moec-cpu: error: .* in (kernel \w+|host) at \S+:\d+")


@dataclass
class Built:
    """A program with the runs that it is judged by, inputs written once."""

    program: Program
    folder: Path
    binary: Path
    runs: list[tuple[Path, dict[str, int]]]
    plain: list[dict[str, bytes]] = field(default_factory=list)

    def run(self, number: int, **environ: str) -> tuple[int, str, dict[str, bytes]]:
        """Exit code, messages and output files of run ``number``."""
        io, sizes = self.runs[number]
        env = {k: v for k, v in os.environ.items() if not k.startswith("MOEC_CPU_")}
        env |= {"MOEC_WEIGHTS": str(self.folder / "weights.bin"), "MOEC_SEPARATE": "1", "MOEC_CPU_STRICT": "1"}
        command = [str(self.binary), str(io), *(f"{n}={v}" for n, v in sorted(sizes.items()))]
        done = subprocess.run(command, capture_output=True, text=True, env=env | environ, timeout=600)
        out = {p.name: p.read_bytes() for p in sorted(io.glob("out.*"))} if done.returncode == 0 else {}
        return done.returncode, done.stderr, out


def prepared(program: Program, runs: Sequence[Arrays], folder: Path, known: Mapping[str, int] | None = None) -> Built:
    """Emitted and built, each run tried in several orders of the cores, which must give the same bytes."""
    write_project(program, folder, TEMPLATES, "Ascend910B1")
    manifest = read_manifest(folder)
    made = Built(program, folder, build(folder, CPU), [])
    for arrays in runs:
        io = Path(tempfile.mkdtemp(dir=folder))
        write_inputs(manifest, arrays, io)
        made.runs.append((io, sizes_of(manifest, arrays, known)))
    for number in range(len(made.runs)):
        outputs = []
        for order in ORDERS:
            code, messages, out = made.run(number, MOEC_CPU_ORDER=order)
            assert code == 0, messages
            outputs.append(out)
        assert all(out == outputs[0] for out in outputs), f"{program.name}: run {number} depends on the order of cores"
        made.plain.append(outputs[0])
    return made


def inject(made: Built, sites: Sequence[Site]) -> None:
    """Runs every site until one of the runs notices it."""
    for site in sites:
        for number, plain in enumerate(made.plain):
            code, messages, out = made.run(number, MOEC_CPU_MASK=site.mask)
            if code != 0:
                assert MESSAGE.search(messages), messages
                site.dynamic = messages.strip().splitlines()[-1]
            elif out != plain:
                site.dynamic = "other outputs"
            if site.dynamic:
                break
