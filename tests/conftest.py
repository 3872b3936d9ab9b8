"""Fixtures that all tests share: golden texts, the sample files, and the corpus of real exports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from corpus_paths import corpus_folder
from golden_plugin import golden  # noqa: F401
from golden_plugin import pytest_addoption as _golden_options
from hypothesis import HealthCheck, settings

DATA = Path(__file__).parent / "data"

# What hypothesis draws is the same every time, and no machine is too slow for it.
settings.register_profile("moec", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("moec")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--snapshot-update`` and ``--slow``."""
    _golden_options(parser)
    parser.addoption("--slow", action="store_true", help="run the full sweeps too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect (not skip) the sweeps unless they are asked for."""
    if config.getoption("--slow"):
        return
    swept = [i for i in items if i.get_closest_marker("slow")]
    if swept:
        config.hook.pytest_deselected(items=swept)
        items[:] = [i for i in items if not i.get_closest_marker("slow")]


@dataclass(frozen=True)
class Corpus:
    """A folder of real exports: ``NAME.onnx`` with stored inputs and outputs in ``NAME.npz`` and a record a file in
    ``index.json``.
    """

    folder: Path

    def onnx(self, name: str) -> Path:
        return self.folder / f"{name}.onnx"

    def npz(self, name: str) -> Path:
        return self.folder / f"{name}.npz"

    def records(self) -> list[dict[str, Any]]:
        """The records of ``index.json``."""
        return list(json.loads((self.folder / "index.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    """The corpus that ``MOEC_CORPUS`` names; the test is skipped where it is not set."""
    folder = corpus_folder()
    if folder is None:
        pytest.skip("MOEC_CORPUS names no folder of exports")
    return Corpus(folder)


@pytest.fixture(scope="session")
def data() -> Path:
    """The sample files that come with the tests."""
    return DATA
