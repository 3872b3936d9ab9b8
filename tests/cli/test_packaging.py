"""The package list and its data files against the tree, and the names that a checkout resolves."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from glob import glob
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOOL = PROJECT["tool"]["setuptools"]


def folder_of(package: str) -> Path:
    """The folder of a package by the longest prefix in package-dir, as setuptools resolves it."""
    prefix = max((p for p in TOOL["package-dir"] if f"{package}.".startswith(f"{p}.")), key=len)
    rest = package.removeprefix(prefix).strip(".").replace(".", "/")
    return ROOT / TOOL["package-dir"][prefix] / rest


def packages_in_tree() -> list[str]:
    found = []
    for prefix, top in TOOL["package-dir"].items():
        for init in (ROOT / top).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / top).parts
            found.append(".".join((prefix, *inner)))
    return sorted(found)


def test_the_package_list_is_the_tree() -> None:
    assert TOOL["packages"] == packages_in_tree()


def declared_data() -> set[Path]:
    """The files that package-data names, as setuptools globs them."""
    found = set()
    for package in TOOL["packages"]:
        for pattern in (*TOOL["package-data"]["*"], *TOOL["package-data"].get(package, ())):
            found |= {Path(f) for f in glob(str(folder_of(package) / pattern), recursive=True)}
    return found


def test_every_file_is_in_a_package_or_declared_as_data() -> None:
    folders = {folder_of(p) for p in TOOL["packages"]}
    files = {f for top in TOOL["package-dir"].values() for f in (ROOT / top).rglob("*") if f.is_file()}
    shipped = {f for f in files if f.suffix == ".py" and f.parent in folders} | declared_data()
    ignored = {f for f in files if f.suffix in (".pyc", ".md") or "__pycache__" in f.parts}
    assert not sorted(files - shipped - ignored)


def test_a_checkout_that_is_not_installed_resolves_the_names(tmp_path: Path) -> None:
    names = ("moec.passes.base", "moec.codegen.kernel_ir", "moec.targets.ascend.machine")
    program = (
        "import sys, importlib; sys.path.insert(0, sys.argv[1])\n"
        f"for name in {names!r}: print(importlib.import_module(name).__file__)\n"
        "from moec.targets.ascend.machine import machines; assert machines()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert [Path(line).relative_to(ROOT).parts[0] for line in done.stdout.split()] == ["passes", "codegen", "targets"]


def test_no_other_name_is_taken_over() -> None:
    """Only the three names resolve to the top-level folders; a plain ``codegen`` does not become moec's."""
    importlib.import_module("moec")
    from moec import _BESIDE

    assert sorted(_BESIDE) == ["moec.codegen", "moec.passes", "moec.targets"]
