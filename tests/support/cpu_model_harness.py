"""Builds and runs the C++ test programs of the CPU model (tests/ascend/cpu_model/programs).

Executables are kept by the content of the program and of the model, in the system's temporary folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "ascend" / "cpu_model" / "programs"
MODEL = ROOT / "targets" / "ascend" / "cpu"
REFUSED = 86


def compile_command(sources: list[Path], output: Path, *options: str, include: Path = MODEL) -> list[str]:
    return [
        "g++",
        "-std=c++17",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        *options,
        "-I",
        str(include),
        *(str(s) for s in sources),
        "-o",
        str(output),
    ]


@cache
def linked() -> tuple[Path, list[Path]]:
    """Headers that only declare, and the objects of the model: programs build in half the time."""
    folder = store() / f"linked_{model_hash()[:16]}"
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(dir=store()))
        subprocess.run([sys.executable, str(MODEL / "linked_headers.py"), str(fresh)], check=True)
        for name, include in (("runtime", MODEL), ("instances", fresh)):
            source = MODEL / "runtime" / f"{name}.cpp"
            subprocess.run(compile_command([source], fresh / f"{name}.o", "-c", include=include), check=True)
        try:
            fresh.rename(folder)
        except OSError:  # another worker was first
            shutil.rmtree(fresh)
    return folder, [folder / "runtime.o", folder / "instances.o"]


def store() -> Path:
    folder = Path(tempfile.gettempdir()) / f"moec_cpu_tests_{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


@cache
def model_hash() -> str:
    h = hashlib.sha256()
    for p in sorted([*MODEL.rglob("*.h"), *MODEL.rglob("*.cpp"), PROGRAMS / "harness.h"]):
        h.update(p.read_bytes())
    return h.hexdigest()


def build(program: str) -> Path:
    """The executable of programs/<program>.cpp; warnings are errors."""
    out, errors = _build(program)
    assert not errors, errors
    return out


@cache
def _build(program: str) -> tuple[Path, str]:
    source = PROGRAMS / f"{program}.cpp"
    key = hashlib.sha256(model_hash().encode() + source.read_bytes() + str(source).encode()).hexdigest()[:16]
    folder = store()
    out = folder / f"{program}_{key}"
    if not out.exists():
        fresh = folder / f"{program}_{key}.{os.getpid()}"
        headers, objects = linked()
        command = compile_command([source, *objects], fresh, include=headers)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return out, done.stderr
        fresh.replace(out)
    return out, ""


def execute(
    program: str, case: str, data: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs one case with ``data`` as its input buffer; variables of the model come from ``env`` only."""
    full = {k: v for k, v in os.environ.items() if not k.startswith("MOEC_CPU_")}
    full.update(env or {})
    return subprocess.run([str(build(program)), case], input=data, capture_output=True, env=full, timeout=60)


def run(
    program: str,
    case: str,
    *arrays: np.ndarray,
    dtype: np.dtype | type = np.float32,
    env: Mapping[str, str] | None = None,
) -> np.ndarray:
    """Output of one case as a flat array; inputs lie one after another in the input buffer."""
    done = execute(program, case, b"".join(np.ascontiguousarray(a).tobytes() for a in arrays), env)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, dtype=dtype)


def refusal(program: str, case: str, *arrays: np.ndarray, env: Mapping[str, str] | None = None) -> str:
    """The message of a case that must be refused; checks the exit code and the shape of the message."""
    done = execute(program, case, b"".join(np.ascontiguousarray(a).tobytes() for a in arrays), env)
    message = done.stderr.decode()
    assert done.returncode == REFUSED, (done.returncode, message)
    assert re.match(r"moec-cpu: error: .+ in (kernel \w+|host) at [^ ]+:\d+.*: .+\n$", message), message
    return message


def line_of(program: str, marker: str) -> int:
    """The line of programs/<program>.cpp that ends in the comment `// marker`."""
    lines = (PROGRAMS / f"{program}.cpp").read_text().splitlines()
    hits = [i for i, text in enumerate(lines, 1) if text.rstrip().endswith(f"// {marker}")]
    assert len(hits) == 1, (marker, hits)
    return hits[0]


def bf16(x: np.ndarray) -> np.ndarray:
    """Bits of bfloat16, rounded to nearest even (the integer formula; no library)."""
    u = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)
