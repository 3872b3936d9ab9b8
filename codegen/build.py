"""Builds an emitted project against a CPU model of the vendor's API and runs it.

Kernels are compiled in groups, since what they share of the model is compiled once a group. Their own code, which
mostly calls the model, is not optimised, nor is the host program; what the model computes is. Objects are cached by
the compiler and by the content of their sources and of every header of the model, so what did not change is not
compiled again; headers that all units read are kept in the compiler's own form too. The cache is MOEC_CACHE, else
XDG_CACHE_HOME/moec, else ~/.cache/moec.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from moec.codegen.precompiled import PRELUDE, compiler_version, precompiled, settle
from moec.diagnostics import Refusal

FLAGS = ("-std=c++17", "-O1")
PLAIN = '#pragma GCC optimize ("O0")\n'
KERNELS, HOST = '#include "kernel_operator.h"\n' + PLAIN, PLAIN
"""What stands before them; functions of headers that come earlier keep the level of FLAGS."""
RUNTIME, INSTANCES = Path("runtime") / "runtime.cpp", Path("runtime") / "instances.cpp"
"""The functions of a CPU model that can be compiled apart from its headers, and its templates for the usual types."""
A_GROUP = 8
"""Kernels that one compilation takes before a second one pays: what kernels share costs as much as these do."""


def cache_folder() -> Path:
    """Where objects and programs are kept."""
    named = os.environ.get("MOEC_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "moec"


@lru_cache(maxsize=8)
def _headers_key(model: Path, version: str) -> str:
    """What decides objects beside their own files: the compiler, its flags, and the model."""
    digest = hashlib.sha256("\n".join((version, *FLAGS, PRELUDE)).encode())
    for path in sorted(p for p in model.rglob("*") if p.suffix in (".h", ".cpp", ".hpp", ".py")):
        digest.update(str(path.relative_to(model)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        shown = "\n".join(lines[:30])
        raise Refusal(f"{what} failed:\n{shown}", todo="command: " + " ".join(command))


@dataclass(frozen=True)
class _Unit:
    """Files compiled together behind ``before``, with the model's headers in ``include``; names in messages are
    relative to ``root``."""

    files: tuple[Path, ...]
    root: Path
    include: Path
    before: str = ""

    @property
    def content(self) -> bytes:
        """What decides the object: the files, their names, the project's headers beside them, what stands before."""
        headers = sorted({h for f in self.files for h in f.parent.glob("*.h")})
        return self.before.encode() + b"".join(
            str(p.relative_to(self.root)).encode() + b"\n" + p.read_bytes() for p in (*self.files, *headers)
        )


@dataclass(frozen=True)
class _Build:
    """The compiler of one build, and what it compiles against: ``key`` names the model, and ``headers`` are its headers
    of declarations only, if it has such."""

    compiler: str
    key: str
    headers: Path | None

    def object_of(self, unit: _Unit) -> Path:
        """Where the object of ``unit`` is kept."""
        name = hashlib.sha256(f"{self.key} {unit.include.name}\n".encode() + unit.content).hexdigest()[:24]
        return cache_folder() / "objects" / f"{unit.files[0].stem}-{name}.o"

    def prelude(self) -> Path | None:
        """What all units that include ``headers`` may read first, precompiled."""
        if self.headers is None:
            return None
        folder = cache_folder() / "precompiled" / self.headers.name
        return precompiled(folder, self.compiler, (*FLAGS, "-I", str(self.headers)))

    def compile(self, unit: _Unit) -> Path:
        """The object of ``unit``, from the cache if it is there."""
        target = self.object_of(unit)
        if target.exists():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        prelude = self.prelude() if unit.include == self.headers else None
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            source, made = Path(scratch) / "unit.cpp", Path(scratch) / "unit.o"
            source.write_text(unit.before + "".join(f'#include "{f}"\n' for f in unit.files))
            named = ", ".join(str(f.relative_to(unit.root)) for f in unit.files)
            prefix = f"-ffile-prefix-map={unit.root}/="
            command = [self.compiler, *FLAGS, prefix, "-I", str(unit.include), "-c", str(source), "-o", str(made)]
            first = [*command, "-include", str(prelude)]
            if prelude is None or subprocess.run(first, capture_output=True).returncode != 0:
                _run(command, f"compiling {named}")
            os.replace(made, target)
        return target


def _declared_only(model: Path, key: str) -> Path | None:
    """Headers of the model that leave its functions to be linked, where the model can write such; kept in the cache."""
    script = model / "linked_headers.py"
    if not script.is_file() or not (model / RUNTIME).is_file():
        return None
    folder = cache_folder() / "headers" / key[:24]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch) / "headers"
            _run([sys.executable, str(script), str(made)], "writing headers for linking")
            settle(made, folder)
    return folder


def _units(project: Path, model: Path, headers: Path | None, jobs: int) -> list[_Unit]:
    """The host program alone, the kernels in up to ``jobs`` groups.

    With ``headers`` of declarations only, the model's functions are compiled once, as units of their own.
    """
    kernels = sorted((project / "kernels").glob("*.cpp"))
    apart = min(jobs, -(-len(kernels) // A_GROUP))
    groups = [tuple(kernels[i::apart]) for i in range(apart)]
    include = headers or model
    return [
        *([_Unit((model / RUNTIME,), model, model), _Unit((model / INSTANCES,), model, headers)] if headers else []),
        *(_Unit((p,), model, model) for p in sorted(model.glob("*.cpp"))),
        *(_Unit(files, project, include, KERNELS) for files in groups),
        _Unit((project / "host" / "main.cpp",), project, include, HOST),
    ]


def build(project: Path, model: Path, jobs: int | None = None) -> Path:
    """The program of an emitted project, compiled against the CPU model in folder ``model``.

    Refusal carries the compiler's first messages. ``jobs`` compilations run side by side (default: cores).
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise Refusal(f"no C++ compiler '{compiler}'", todo="install g++ or set CXX")
    project, model = project.resolve(), model.resolve()
    key = _headers_key(model, compiler_version(compiler))
    jobs = jobs or os.cpu_count() or 1
    headers = _declared_only(model, key)
    units = _units(project, model, headers, jobs)
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        objects = list(pool.map(_Build(compiler, key, headers).compile, units))
    name = hashlib.sha256("\n".join(o.name for o in objects).encode()).hexdigest()[:24]
    program = cache_folder() / "programs" / name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        temporary = program.with_name(f"{name}.{os.getpid()}.{threading.get_ident()}")
        _run([compiler, *map(str, objects), "-o", str(temporary)], "linking")
        os.replace(temporary, program)
    return program


def run(
    program: Path, project: Path, folder: Path, sizes: Mapping[str, int], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a built project on ``folder`` (in.*.bin to out.*.bin); the caller judges the exit code. Temporaries are
    allocated one by one, unless MOEC_POISON is set: then they share one block, and what is dead is overwritten.
    """
    env = _environment(project, environment)
    return subprocess.run([str(program), str(folder), *_sizes(sizes)], capture_output=True, text=True, env=env)


STOPPED = 87
"""Exit code of a rank that stops because another has failed."""


def run_ranks(
    program: Path,
    project: Path,
    folder: Path,
    sizes: Sequence[Mapping[str, int]],
    environment: Mapping[str, str] | None = None,
) -> list[subprocess.CompletedProcess[str]]:
    """Runs every rank of a built project side by side, rank r with ``sizes[r]`` on ``folder/rank<r>``; see ``run``."""
    env = _environment(project, environment)
    started, texts = [], []
    for rank, own in enumerate(sizes):
        texts.append((folder / f"rank{rank}" / "messages").open("w+"))
        env |= {"RANK_ID": str(rank), "RANK_SIZE": str(len(sizes))}
        command = [str(program), str(folder), *_sizes(own)]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=texts[-1], env=env))
    done = []
    for process, text in zip(started, texts, strict=True):
        process.wait()
        text.seek(0)
        done.append(subprocess.CompletedProcess(process.args, process.returncode, "", text.read()))
        text.close()
    return done


def _environment(project: Path, environment: Mapping[str, str] | None) -> dict[str, str]:
    env = dict(os.environ) | dict(environment or {})
    env.setdefault("MOEC_WEIGHTS", str(project / "weights.bin"))
    if "MOEC_POISON" not in env:
        env.setdefault("MOEC_SEPARATE", "1")  # the CPU model checks the ends of every allocation
    return env


def _sizes(sizes: Mapping[str, int]) -> list[str]:
    return [f"{name}={number}" for name, number in sorted(sizes.items())]
