"""Runs kernels and programs on the CPU model: emit, build (cached), feed arrays, compare, and mask sites in turn."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np

from moec.codegen.arrays import read_manifest, read_outputs, write_inputs
from moec.codegen.build import build, run
from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.interpret import seats, trace
from moec.codegen.kernel_ir import ITEMSIZE, Instr, Kernel, LoadScalar, StoreScalar, Witness
from moec.codegen.program import Launch, Output, Program, Tensor
from moec.codegen.project import write_project
from moec.codegen.scalar import Arg, Bin, Scalar
from moec.ir.symbol import Dim, ceildiv, dmax, dmin, floordiv, mod, sym

ROOT = Path(__file__).resolve().parents[2]
CPU = ROOT / "targets" / "ascend" / "cpu"
TEMPLATES = ROOT / "targets" / "ascend" / "templates"

_DIM = {"//": floordiv, "cdiv": ceildiv, "%": mod, "min": dmin, "max": dmax}


def dim_of(s: Scalar) -> Dim:
    """A shape scalar (arguments, literals, arithmetic) as a dimension."""
    if isinstance(s, Arg):
        return sym(s.name)
    if isinstance(s, Bin):
        a, b = dim_of(s.a), dim_of(s.b)
        if s.op in _DIM:
            return _DIM[s.op](a, b)
        return a + b if s.op == "+" else a - b if s.op == "-" else a * b
    assert isinstance(s, int)
    return s


def program_of(kernel: Kernel, cores: int) -> Program:
    """A program of one launch; the kernel's arguments are its symbols, in and inout parameters its inputs."""
    return programs_of([kernel], cores, prefix=False)


def programs_of(kernels: Sequence[Kernel], cores: int, prefix: bool = True) -> Program:
    """One program that launches each kernel once on tensors of its own, called ``<kernel>.<parameter>`` outside.

    Arguments of equal name are one symbol. Many kernels in one program are quicker to build than many programs.
    """
    tensors, outputs, launches = [], [], []
    symbols: dict[str, tuple[int, int]] = {}
    for kernel in kernels:
        own = f"{kernel.name}." if prefix else ""
        symbols |= {a.name: (a.lo, a.hi) for a in kernel.args}
        for p in kernel.params:
            shape = tuple(dim_of(d) for d in p.shape)
            name = (own + p.name).replace(".", "_")
            tensors.append(Tensor(name, p.dtype, shape, "temp" if p.direction == "out" else "input", own + p.name))
            if p.direction != "in":
                outputs.append(Output(own + p.name, name, shape))
        operands = tuple((p.name, (own + p.name).replace(".", "_")) for p in kernel.params)
        launches.append(
            Launch(kernel.name, operands, tuple((a.name, sym(a.name)) for a in kernel.args), (kernel.name,))
        )
    both = {"aic": cores, "aiv": cores}
    return Program("kernels", symbols, tuple(kernels), tuple(tensors), tuple(outputs), tuple(launches), both)


@dataclass
class Project:
    """An emitted and built program."""

    folder: Path
    binary: Path

    def run(
        self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], **environment: str
    ) -> tuple[int, str, dict[str, np.ndarray]]:
        """Exit code, messages, and the outputs (none after a failure)."""
        manifest = read_manifest(self.folder)
        with tempfile.TemporaryDirectory() as name:
            io = Path(name)
            write_inputs(manifest, arrays, io)
            done = run(self.binary, self.folder, io, sizes, environment)
            outputs = read_outputs(manifest, sizes, io) if done.returncode == 0 else {}
        return done.returncode, done.stderr, outputs

    def outputs(
        self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], **environment: str
    ) -> dict[str, np.ndarray]:
        """The outputs; a failed run is an assertion."""
        code, messages, outputs = self.run(arrays, sizes, **environment)
        assert code == 0, messages
        return outputs

    @property
    def sites(self) -> dict[str, dict[str, object]]:
        return json.loads((self.folder / "sites.json").read_text())


def built(program: Program, folder: Path) -> Project:
    """Emits ``program`` into ``folder`` and builds it (objects and programs come from the cache)."""
    write_project(program, folder, TEMPLATES, "Ascend910B1")
    return Project(folder, build(folder, CPU))


def built_kernel(kernel: Kernel, folder: Path, cores: int = 2) -> Project:
    """One kernel as a project of its own, launched on at most ``cores`` cores."""
    return built(program_of(kernel, cores), folder)


@dataclass
class Case:
    """One run to judge by: inputs, sizes, and the outputs expected (within ``atol``)."""

    arrays: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]
    expected: Mapping[str, np.ndarray]
    atol: float = 1e-3


@dataclass
class Masked:
    """The result of leaving out every site in turn: ``missed`` maps site ids to their text."""

    total: dict[str, int] = field(default_factory=dict)
    caught: dict[str, int] = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(f"{kind} {self.caught.get(kind, 0)}/{n}" for kind, n in sorted(self.total.items()))


MESSAGE = re.compile(r"moec-cpu: error: .* in kernel \w+ at \S+:\d+ \(core (aiv|aic) \d+\)")


def mask_sites(project: Project, cases: Sequence[Case], kinds: Sequence[str] = ()) -> Masked:
    """Leaves out each site in turn (of ``kinds``, or all) and runs the cases until one notices.

    A site is caught when a run is refused with a message that names kernel and place, or gives other outputs.
    """
    report = Masked()
    sites = {i: s for i, s in project.sites.items() if not kinds or s["kind"] in kinds}

    def trial(item: tuple[str, dict[str, object]]) -> tuple[str, str]:
        site, info = item
        mask = f"{info['kind']}@{info['file']}:{info['line']}"
        for case in cases:
            code, messages, outputs = project.run(case.arrays, case.sizes, MOEC_CPU_MASK=mask, MOEC_CPU_STRICT="1")
            if code != 0:
                assert MESSAGE.search(messages), messages
                return site, messages.strip()
            for name, want in case.expected.items():
                got = outputs[name].astype(np.float64)
                if not np.allclose(got, want.astype(np.float64), rtol=0, atol=case.atol):
                    return site, "other outputs"
        return site, ""

    with ThreadPoolExecutor(2) as pool:
        for site, message in pool.map(trial, sites.items()):
            kind = str(sites[site]["kind"])
            report.total[kind] = report.total.get(kind, 0) + 1
            if message:
                report.caught[kind] = report.caught.get(kind, 0) + 1
                report.messages[site] = message
            else:
                report.missed[site] = f"{kind} {sites[site]['file']}:{sites[site]['line']} {sites[site]['text']}"
    return report


CALLS = {
    "SetFlag": "SetFlag",
    "WaitFlag": "WaitFlag",
    "Barrier": "PipeBarrier",
    "CrossCoreSet": "CrossCoreSetFlag",
    "CrossCoreWait": "CrossCoreWaitFlag",
    "SyncAll": "SyncAll",
}
"""Names that the CPU model counts synchronisation under."""


def issued(kernel: Kernel, witness: Witness) -> dict[tuple[str, str], tuple[int, int]]:
    """Instructions and bytes by (pipe, the CPU model's name of the instruction), over all cores, from the kernel IR."""
    out: dict[tuple[str, str], tuple[int, int]] = {}
    for core, seat in product(range(witness.cores), seats(kernel)):
        for event in trace(kernel, witness, core, None, seat):
            stmt = event.stmt
            nbytes = 0
            if isinstance(stmt, Instr):
                spec = INSTRUCTIONS[stmt.op]
                name = re.findall(r"([A-Z]\w+)[<(]", spec.call)[0]
                name = "Nd2Nz" if stmt.op == "Nd2Nz" else name
                assert event.resolved is not None
                nbytes = spec.work(event.resolved, "").bytes
            elif isinstance(stmt, LoadScalar | StoreScalar):
                name = "GetValue" if isinstance(stmt, LoadScalar) else "SetValue"
                nbytes = ITEMSIZE[stmt.ref.dtype]
            else:
                name = CALLS.get(type(stmt).__name__, "")
            if name:
                count, total = out.get((event.pipe, name), (0, 0))
                out[event.pipe, name] = (count + 1, total + nbytes)
    return out


def executed(
    project: Project, case_arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> dict[tuple[str, str], dict[str, int]]:
    """What a run on the CPU model counted, by (pipe, instruction), of its only launch."""
    with tempfile.TemporaryDirectory() as name:
        stats = Path(name) / "stats.json"
        project.outputs(case_arrays, sizes, MOEC_CPU_STATS=str(stats))
        (launch,) = json.loads(stats.read_text())["launches"]
    return {(i["pipe"], i["op"]): i for i in launch["instructions"]}
