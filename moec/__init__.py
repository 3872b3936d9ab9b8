"""moec: a compiler for mixture-of-experts transformer layers on Ascend NPUs.

``passes/``, ``codegen/`` and ``targets/`` stand at the top of the repository and import as ``moec.passes``,
``moec.codegen`` and ``moec.targets``. An installed moec has them by setuptools' ``package-dir``; in a checkout the
finder
below resolves these three names, and no others, to the folders beside this one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_ROOT = Path(__file__).resolve().parent.parent
_BESIDE = {f"moec.{name}": _ROOT / name for name in ("passes", "codegen", "targets")}


class _CheckoutFinder(MetaPathFinder):
    """Finds the three top-level folders of a checkout under their ``moec.`` names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        folder = _BESIDE.get(fullname)
        if folder is None or not (folder / "__init__.py").is_file():
            return None
        return importlib.util.spec_from_file_location(
            fullname, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )


if not any(type(finder).__name__ == "_CheckoutFinder" for finder in sys.meta_path):
    sys.meta_path.append(_CheckoutFinder())


def __getattr__(name: str) -> Any:
    """``moec.compile`` and ``moec.load``, imported when first asked for, so that ``import moec`` stays quick."""
    if name in ("compile", "load"):
        from moec import driver

        return getattr(driver, name)
    raise AttributeError(f"module 'moec' has no attribute {name!r}")
