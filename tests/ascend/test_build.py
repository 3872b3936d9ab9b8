"""Builds of emitted projects: headers that are precompiled, and all the ways to do without."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from moec.codegen.build import FLAGS, build
from moec.codegen.precompiled import HEADER, KEPT, precompiled, settle
from moec.diagnostics import Refusal

COPY = """import shutil, sys, pathlib
shutil.copytree(pathlib.Path(__file__).parent, sys.argv[1], ignore=shutil.ignore_patterns("*.py", "*.cpp"))
"""
FILES = {
    "model/kernel_operator.h": "#pragma once\nint twice(int);\n",
    "model/acl/acl.h": "#pragma once\n",
    "model/linked_headers.py": COPY,
    "model/runtime/runtime.cpp": "int twice(int a) { return 2 * a; }\n",
    "model/runtime/instances.cpp": "",
    "project/kernels/k.cpp": '#include "kernel_operator.h"\nint kernel() { return twice(21); }\n',
    "project/host/main.cpp": '#include <cstdio>\nint kernel();\nint main() { std::printf("%d", kernel()); }\n',
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small model, a project for it, and a cache of its own."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("MOEC_CACHE", str(tmp_path / "cache"))
    return tmp_path


def _printed(place: Path) -> str:
    return subprocess.run([build(place / "project", place / "model")], capture_output=True, text=True).stdout


def test_a_precompiled_header_that_cannot_be_read_is_done_without(place: Path) -> None:
    assert _printed(place) == "42"
    (header,) = (place / "cache" / "precompiled").glob("*/*.gch")
    header.write_bytes(header.read_bytes()[:100])
    host = place / "project" / "host" / "main.cpp"
    host.write_text(host.read_text().replace("%d", "<%d>"))
    assert _printed(place) == "<42>"


def test_messages_name_the_line_of_the_kernel(place: Path) -> None:
    (place / "project" / "kernels" / "k.cpp").write_text(
        '#include "kernel_operator.h"\n\nint kernel() { return gone; }\n'
    )
    with pytest.raises(
        Refusal, match=r"(?s)compiling kernels/k.cpp failed.*/kernels/k.cpp:3:23: error: .gone. was not"
    ):
        build(place / "project", place / "model")


def test_other_compilers_read_text(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = place / "other"
    other.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "clang version 19" && exit\nexec g++ "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("CXX", str(other))
    assert _printed(place) == "42"
    assert not (place / "cache" / "precompiled").exists()


def test_gcc_takes_what_was_made_and_the_ones_used_last_stay(place: Path) -> None:
    include = ("-I", str(place / "model"))
    parent = place / "cache" / "precompiled"
    old = [parent / str(i) for i in range(KEPT + 1)]
    for folder in old:
        folder.mkdir(parents=True)
    header = precompiled(parent / "new", "g++", (*FLAGS, *include))
    assert header == parent / "new" / HEADER
    assert len(list(parent.iterdir())) == KEPT
    command = ["g++", *FLAGS, *include, "-H", "-include", str(header), "-fsyntax-only", "-x", "c++", "/dev/null"]
    assert f"! {header}.gch" in subprocess.run(command, capture_output=True, text=True).stderr


def test_a_cache_that_cannot_be_written_has_none(place: Path) -> None:
    (place / "file").write_text("")
    assert precompiled(place / "file" / "new", "g++", FLAGS) is None


def test_the_first_of_two_processes_wins(place: Path) -> None:
    for name in ("first", "second"):
        (place / name).mkdir()
        (place / name / name).write_text("")
        settle(place / name, place / "kept")
    assert [p.name for p in (place / "kept").iterdir()] == ["first"]
