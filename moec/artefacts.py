"""The output folder of a compilation: written beside, renamed when complete, never mixed with files that are not
moec's.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moec.diagnostics import Refusal, Where

SUMMARY = "summary.json"
"""The file by which an output folder of moec is known."""


def check_output(final: Path) -> None:
    """Refusal unless ``final`` is absent, an empty folder, or an earlier output of moec."""
    todo = "give another folder with -o, or remove this one"
    if final.is_symlink() or (final.exists() and not final.is_dir()):
        raise Refusal("the output is no folder", Where(str(final)), todo)
    if final.is_dir() and any(final.iterdir()) and not _is_ours(final):
        raise Refusal("the output folder holds files that moec did not write", Where(str(final)), todo)


def _is_ours(folder: Path) -> bool:
    try:
        return "moec" in json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


@contextmanager
def output_folder(final: Path) -> Iterator[Path]:
    """A temporary folder beside ``final`` that takes its place when the block ends without an exception; else nothing
    is left behind.
    """
    check_output(final)
    final = final.absolute()
    made = [p for p in final.parents if not p.exists()]
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    except OSError as error:
        _remove_empty(made)
        raise Refusal(f"cannot write the output: {error.strerror}", Where(str(final)), "give a writable -o") from None
    try:
        yield work
        work.chmod(0o777 & ~_umask())
        _replace(work, final)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        _remove_empty(made)
        raise


def _replace(work: Path, final: Path) -> None:
    old = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    if final.exists():
        os.rename(final, old)
    try:
        os.rename(work, final)
    except OSError:
        if any(old.iterdir()):
            os.rename(old, final)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
