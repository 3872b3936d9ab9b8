"""Builds an emitted project against a CPU model of the vendor's API and runs it.

Objects are cached by the content of their source and of every header beside the model, so an unchanged kernel is
compiled once. The cache is MOEC_CACHE, else XDG_CACHE_HOME/moec, else ~/.cache/moec.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from moec.diagnostics import Refusal

FLAGS = ("-std=c++17", "-O1")


def cache_folder() -> Path:
    """Where objects and programs are kept."""
    named = os.environ.get("MOEC_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "moec"


@lru_cache(maxsize=8)
def _headers_key(model: Path) -> str:
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(p for p in model.rglob("*") if p.suffix in (".h", ".cpp", ".hpp", ".inc")):
        digest.update(str(path.relative_to(model)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        shown = "\n".join(lines[:30])
        raise Refusal(f"{what} failed:\n{shown}", todo="command: " + " ".join(command))


def _compile(source: Path, include: Path, key: str, model: Path, compiler: str) -> Path:
    """The object of ``source``, from the cache if it is there. ``include`` names the file to the compiler."""
    relative = source.relative_to(include) if source.is_relative_to(include) else Path(source.name)
    content = hashlib.sha256(f"{key} {relative}\n".encode() + source.read_bytes()).hexdigest()
    target = cache_folder() / "objects" / f"{source.stem}-{content[:24]}.o"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".o", delete=False) as temporary:
            pass
        command = [compiler, *FLAGS, f"-ffile-prefix-map={include}/=", "-I", str(model), "-c", str(source)]
        _run([*command, "-o", temporary.name], f"compiling {relative}")
        os.replace(temporary.name, target)
    return target


def build(project: Path, model: Path, jobs: int | None = None) -> Path:
    """The program of an emitted project, compiled against the CPU model in folder ``model``.

    Refusal carries the compiler's first messages. Files compile side by side, ``jobs`` at a time (default: cores).
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise Refusal(f"no C++ compiler '{compiler}'", todo="install g++ or set CXX")
    project, model = project.resolve(), model.resolve()
    key = _headers_key(model)
    own = [(p, project) for p in [*sorted((project / "kernels").glob("*.cpp")), project / "host" / "main.cpp"]]
    own += [(p, model) for p in sorted(model.glob("*.cpp"))]
    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        objects = list(pool.map(lambda item: _compile(item[0], item[1], key, model, compiler), own))
    name = hashlib.sha256("\n".join(o.name for o in objects).encode()).hexdigest()[:24]
    program = cache_folder() / "programs" / name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        temporary = program.with_name(f"{name}.{os.getpid()}")
        _run([compiler, *map(str, objects), "-o", str(temporary)], "linking")
        os.replace(temporary, program)
    return program


def run(
    program: Path, project: Path, folder: Path, sizes: Mapping[str, int], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a built project on ``folder`` (in.*.bin to out.*.bin); the caller judges the exit code."""
    env = dict(os.environ)
    env.setdefault("MOEC_WEIGHTS", str(project / "weights.bin"))
    env.update(environment or {})
    arguments = [f"{name}={number}" for name, number in sorted(sizes.items())]
    return subprocess.run([str(program), str(folder), *arguments], capture_output=True, text=True, env=env)
