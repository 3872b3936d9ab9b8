"""The headers that all compilations of emitted projects read, in GCC's own form, kept in the cache of built projects.

With the headers of a CPU model and what a host program includes, an empty unit costs 1.1 s of processor time, with them
precompiled 0.4 s (g++ 12; made in 4 s, 80 MB). It is only ever a shorter way: a compiler that is not GCC, or a cache
that cannot be written, does without, and a precompiled header that GCC does not accept is read as text.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

PRELUDE = """#include "kernel_operator.h"
#include "acl/acl.h"
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>
"""
"""What a unit reads before all else; units include what they use all the same."""
HEADER = "prelude.h"
KEPT = 3
"""Models, or compilers, whose headers stay in the cache: those used last."""
_making = threading.Lock()


@lru_cache(maxsize=8)
def compiler_version(compiler: str) -> str:
    """What ``compiler --version`` says."""
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout


def is_gcc(compiler: str) -> bool:
    """Whether ``compiler`` reads headers that it has precompiled by ``-include`` of the header beside them."""
    return "Free Software Foundation" in compiler_version(compiler)


def precompiled(folder: Path, compiler: str, flags: Sequence[str]) -> Path | None:
    """The header to ``-include``, in ``folder``, precompiled with ``flags``; made if it is not there.

    ``None`` where there can be none. Several processes may make it at once: the first one's stays.
    """
    if not is_gcc(compiler):
        return None
    try:
        with _making:
            if folder.is_dir():
                os.utime(folder)
            elif not _make(folder, compiler, flags):
                return None
    except OSError:  # the cache is read-only, or the disk full
        return None
    return folder / HEADER


def _make(folder: Path, compiler: str, flags: Sequence[str]) -> bool:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / folder.name
        made.mkdir()
        text = made / HEADER
        text.write_text(PRELUDE)
        command = [compiler, *flags, "-x", "c++-header", str(text), "-o", f"{text}.gch"]
        if subprocess.run(command, capture_output=True).returncode != 0:
            return False
        settle(made, folder)
    for old in sorted(folder.parent.iterdir(), key=lambda p: p.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return True


def settle(made: Path, folder: Path) -> None:
    """Renames a folder that is complete, unless another process has put its own there meanwhile."""
    try:
        os.replace(made, folder)
    except OSError:
        if not folder.is_dir():
            raise
