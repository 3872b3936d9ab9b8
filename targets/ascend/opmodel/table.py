"""Estimates for a table of operators: a CSV in, the same rows in the same order with predictions out.

Rows are read and written one at a time. A file that is no such table (no header, missing columns, a row with too few
or too many fields) is refused with its line; a row that makes no sense keeps its place and gets a reason.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO

from moec.diagnostics import Problem, Refusal, Where, suggest
from moec.targets.ascend.machine import load
from moec.targets.ascend.opmodel.chip import Chip, chip_of, machine_of_class, stated
from moec.targets.ascend.opmodel.constants import OP_MODEL_VERSION
from moec.targets.ascend.opmodel.estimate import Estimate, estimate_work
from moec.targets.ascend.opmodel.rows_in import Declined, Row, read_row
from moec.targets.ascend.opmodel.vendor import describe, on_host_cores

REQUIRED = ("chip", "op", "input_shapes")
LONGEST_CELL = 1 << 24
"""Characters of a cell at most; operators over lists of tensors have long ones."""

HOST_CORES = "AI_CPU"
"""What the profiler calls the chip's general-purpose cores, which run what has no kernel."""

ADDED = ("predicted_us", "low_us", "high_us", "bound_by", "reason", "model")
"""Columns that are appended."""


@dataclass
class Count:
    """Rows read, and those declined by reason's column."""

    rows: int = 0
    declined: dict[str, int] = field(default_factory=dict)

    @property
    def estimated(self) -> int:
        """Rows with an estimate."""
        return self.rows - sum(self.declined.values())


@lru_cache(maxsize=65536)
def estimate_row(row: Row, chip: Chip) -> Estimate:
    """The estimate of one row; Declined where its operands do not fit its operator."""
    if row.core == HOST_CORES:
        return estimate_work(on_host_cores(row.ins, row.outs), chip, 1)
    try:
        work = describe(row.op, row.ins, row.outs)
    except ValueError as error:
        raise Declined(f"input_shapes: {error}") from None
    except (IndexError, ZeroDivisionError):
        raise Declined(f"input_shapes: operands do not fit {row.op}") from None
    return estimate_work(work, chip, row.blocks)


@lru_cache(maxsize=4096)
def chip_for(text: str, machine: str | None, mhz: float | None) -> Chip:
    """The chip of a class name, or of the ``machine`` that it is mapped to; the row's clock and the class's stated
    clock and cores hold before the machine's own. Declined for a class like no machine.
    """
    name = machine or machine_of_class(text)
    if name is None:
        raise Declined(f"chip: no machine is like '{text}'; map it with --chip-as")
    cores, clock = stated(text)
    return chip_of(load(name), mhz or clock, cores)


def estimate_table(
    lines: Iterable[str], out: IO[str], name: str, chips: Mapping[str, str] | None = None, count: Count | None = None
) -> Count:
    """Read a CSV from ``lines``, write it with predictions to ``out``.

    ``chips`` maps chip classes to machines; ``name`` stands in refusals. Refusal for a broken table.
    """
    count = count or Count()
    chips = chips or {}
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(lines, strict=True)
    rows = _records(reader, name)
    header = next(rows, None)
    if header is None:
        raise Refusal(f"{name} is empty", Where(name, 1), f"give a header line with {', '.join(REQUIRED)}")
    columns = _check_header(header[1], name)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*columns, *ADDED])
    for line, cells in rows:
        if len(cells) != len(columns):
            what = f"{len(cells)} fields, the header has {len(columns)}"
            raise Refusal(what, Where(name, line), _ragged(cells, columns))
        count.rows += 1
        writer.writerow([*cells, *_predicted(dict(zip(columns, cells, strict=True)), chips, count)])
    return count


def _records(reader: Iterator[list[str]], name: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each record; blank lines are skipped. Refusal where the text is no CSV."""
    line = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise Refusal(f"no CSV: {error}", Where(name, reader.line_num), "check quotes and commas") from None  # type: ignore[attr-defined]
        except UnicodeDecodeError as error:
            raise Refusal(f"no UTF-8 text: {error.reason}", Where(name, line), "save the table as UTF-8 CSV") from None
        if cells:
            yield line, cells
        line = reader.line_num + 1  # type: ignore[attr-defined]


def _check_header(cells: list[str], name: str) -> list[str]:
    columns = [c.strip().removeprefix("\ufeff") for c in cells]
    problems = []
    for wanted in REQUIRED:
        if wanted not in columns:
            hint = suggest(wanted, columns).replace("did you mean", "is it")
            problems.append(Problem(f"no column '{wanted}'", Where(name, 1), hint or f"columns: {', '.join(columns)}"))
    for i, column in enumerate(columns):
        if column in columns[:i]:
            problems.append(Problem(f"column '{column}' twice", Where(name, 1, i + 1), "rename one"))
        if column in ADDED:
            problems.append(Problem(f"column '{column}' is one that is added", Where(name, 1, i + 1), "rename it"))
    if problems:
        raise Refusal(problems)
    return columns


def _ragged(cells: list[str], columns: list[str]) -> str:
    if len(cells) < len(columns):
        return f"column '{columns[len(cells)]}' and those behind it are missing"
    return f"from field {len(columns) + 1} on there is no column: quote cells that hold commas"


def _predicted(cells: Mapping[str, str], chips: Mapping[str, str], count: Count) -> list[str]:
    try:
        row = read_row(cells)
        chip = chip_for(cells["chip"], chips.get(cells["chip"]), row.mhz)
        e = estimate_row(row, chip)
    except Declined as declined:
        column = str(declined).partition(":")[0]
        count.declined[column] = count.declined.get(column, 0) + 1
        return ["", "", "", "", str(declined), OP_MODEL_VERSION]
    us = (e.prediction.us, e.low_us, e.high_us)
    return [*(f"{v:.3f}" for v in us), e.prediction.bound, "", OP_MODEL_VERSION]
