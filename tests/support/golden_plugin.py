"""Golden tests: text in, text out, one file per test.

A test takes the ``golden`` fixture and calls it with the text that it produced. The expected text stands in
``tests/<area>/<test file without test_>/<test name without test_>.txt``. Where the test reads its input from the
same file, that stands above a line ``==== expected`` and ``golden.text`` is it. A missing golden fails and shows
the actual text; ``--snapshot-update`` writes it.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

SEPARATOR = "==== expected\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--snapshot-update``."""
    parser.addoption(
        "--snapshot-update", action="store_true", help="write the golden files from what the tests produce"
    )


class Golden:
    """The golden file of one test; call it with the actual text."""

    def __init__(self, path: Path, update: bool):
        self.path, self.update = path, update

    def _parts(self) -> tuple[str, str | None]:
        """The input and, where the file has it, the expected text."""
        if not self.path.is_file():
            return "", None
        stored = self.path.read_text(encoding="utf-8")
        head, separator, tail = stored.partition(SEPARATOR)
        if separator:
            return head, tail
        return "", stored

    @property
    def text(self) -> str:
        """The input above the separator. A new test starts as a file of the input and the separator line."""
        if not self.path.is_file():
            pytest.fail(f"{self.path} is missing: write the input and a line '{SEPARATOR.strip()}' into it")
        return self._parts()[0]

    def __call__(self, actual: str) -> None:
        """Compare; fails with a diff, or with the actual text where nothing is stored yet."""
        if not actual.endswith("\n"):
            actual += "\n"
        head, expected = self._parts()
        if actual == expected:
            return
        if self.update:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text((head + SEPARATOR if head else "") + actual, encoding="utf-8")
            return
        if not expected:
            pytest.fail(
                f"no golden text in {self.path} (--snapshot-update writes it); actual:\n{actual}", pytrace=False
            )
        lines = difflib.unified_diff(expected.splitlines(), actual.splitlines(), str(self.path), "actual", lineterm="")
        pytest.fail("golden text differs (--snapshot-update accepts it):\n" + "\n".join(lines), pytrace=False)


def golden_path(node: pytest.Item) -> Path:
    """Where the golden text of a test lies."""
    name = re.sub(r"[^A-Za-z0-9_.=-]+", "_", node.name.removeprefix("test_")).strip("_")
    return node.path.parent / node.path.stem.removeprefix("test_") / f"{name}.txt"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """The golden file of this test."""
    return Golden(golden_path(request.node), request.config.getoption("--snapshot-update"))
