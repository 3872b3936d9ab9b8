"""Records of a table as people save it: any usual separator, quotes that never close, rows too short or too long.

Every line that holds anything gives a record with one cell for each column of the header; what had to be taken for
granted or does not fit stands beside it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO

SEPARATORS = (",", "\t", ";", "|")
"""What may stand between cells; the header says which."""

LONGEST_QUOTE = 64
"""Lines that one quoted cell may go over; a quote that is open for longer was never meant as one."""

LONGEST_CELL = (1 << 31) - 1
"""Characters of a cell at most: as many as the reader counts, for operators over lists of tensors have long ones."""


TRIES = 4
"""Lines with a quote that may be the end of such a cell."""


@dataclass(frozen=True)
class Record:
    """Cells by column in order, the line they begin at, what is wrong with their number ("" where nothing is)."""

    line: int
    cells: list[str]
    fault: str = ""
    note: str = ""


class Records:
    """The header of ``lines``, and then its records. ``separator`` is that of the header."""

    def __init__(self, lines: Iterable[str]) -> None:
        csv.field_size_limit(LONGEST_CELL)
        self._lines = _Lines(lines)
        self.separator = ","
        self.columns: list[str] = []
        for _, text in self._lines:
            if text.strip():
                first = text.removeprefix("\ufeff")
                self.separator = max(SEPARATORS, key=lambda s: (_bare(first).count(s), -SEPARATORS.index(s)))
                self.columns = [c.strip() for c in _cells(first, self.separator)]
                break

    def __iter__(self) -> Iterator[Record]:
        for line, text in self._lines:
            if text.strip():
                yield self._record(line, text)

    def _record(self, line: int, text: str) -> Record:
        """One line, or as many as its quotes hold together where that gives each column its cell."""
        cells, within = _parsed(text, self.separator)
        if not within:
            return self._fitted(line, cells, "")
        joined, tries = [text], 0
        while len(joined) < LONGEST_QUOTE and tries < TRIES:
            following = self._lines.peek(len(joined))
            if following is None:
                break
            joined.append(following)
            if '"' not in following:
                continue
            tries += 1
            whole, within = _parsed("".join(joined), self.separator)
            if not within:
                if len(whole) != len(self.columns):
                    break
                self._lines.skip(len(joined) - 1)
                return Record(line, whole)
        before, _, behind = text.rpartition('"')
        cells, within = _parsed(before + behind, self.separator)
        if within:
            cells, _ = _parsed(text.replace('"', ""), self.separator)
        return self._fitted(line, cells, "a quote that never closes is left out")

    def _fitted(self, line: int, cells: list[str], note: str) -> Record:
        """``cells`` cut or filled to the number of columns."""
        wanted = len(self.columns)
        surplus = cells[wanted:]
        if any(c.strip() for c in surplus):
            fault = f"{len(cells)} fields, the header has {wanted}: quote cells that hold '{self.separator}'"
            return Record(line, cells[:wanted], f"{fault}; left over: {self.separator.join(surplus)}", note)
        if len(cells) < wanted:
            short = f"{len(cells)} fields of {wanted}: the others are taken to be empty"
            return Record(line, cells + [""] * (wanted - len(cells)), note="; ".join(filter(None, (note, short))))
        return Record(line, cells[:wanted], note=note)


class _Lines:
    """Numbered lines with a look ahead."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._source = iter(lines)
        self._ahead: list[str] = []
        self._number = 0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        while self.peek(1) is not None:
            text = self._ahead.pop(0)
            self._number += 1
            yield self._number, text

    def peek(self, count: int) -> str | None:
        """The line ``count`` ahead, None behind the end."""
        while len(self._ahead) < count:
            text = next(self._source, None)
            if text is None:
                return None
            self._ahead.append(text.replace("\0", ""))
        return self._ahead[count - 1]

    def skip(self, count: int) -> None:
        """Leave out the next ``count`` lines."""
        self._number += count
        del self._ahead[:count]


def _bare(text: str) -> str:
    """``text`` without what stands in quotes."""
    return "".join(text.split('"')[::2])


def _cells(text: str, separator: str) -> list[str]:
    return _parsed(text, separator)[0]


def _parsed(text: str, separator: str) -> tuple[list[str], bool]:
    """The cells of one record, none where ``text`` holds several, and whether its end lies within quotes."""
    bare = text.rstrip("\r\n")
    records = list(csv.reader(StringIO(bare, newline=""), delimiter=separator)) or [[""]]
    if '"' not in bare:
        return records[0], False
    longer = list(csv.reader(StringIO(bare + "\n", newline=""), delimiter=separator))
    return records[0] if len(records) == 1 else [], longer[-1:] != records[-1:]
