"""The golden fixture itself: missing fails and shows, difference fails with a diff, update writes, input stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_plugin import Golden


def test_a_missing_golden_fails_and_shows_the_text(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="actual:\nhello"):
        Golden(tmp_path / "x.txt", False)("hello")


def test_a_difference_fails_with_a_diff(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    with pytest.raises(pytest.fail.Exception, match="-two\n\\+three"):
        Golden(tmp_path / "x.txt", False)("one\nthree")
    Golden(tmp_path / "x.txt", False)("one\ntwo")


def test_update_writes_and_keeps_the_input(tmp_path: Path) -> None:
    file = tmp_path / "area" / "x.txt"
    Golden(file, True)("hello")
    assert file.read_text() == "hello\n"
    file.write_text("input\n==== expected\n")
    golden = Golden(file, True)
    assert golden.text == "input\n"
    with pytest.raises(pytest.fail.Exception, match="actual:\noutput"):
        Golden(file, False)("output")
    golden("output")
    assert file.read_text() == "input\n==== expected\noutput\n"
    Golden(file, False)("output")
