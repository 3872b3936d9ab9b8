"""Estimates for a table of operators: a CSV in, the same rows in the same order with predictions out.

Rows are read and written one at a time. A file without a header that names the needed columns is refused; a row keeps
its place whatever it holds: with an estimate, and what was taken for granted for it, or with the reason for none.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO

from moec.diagnostics import Problem, Refusal, Where, suggest
from moec.targets.ascend.machine import load
from moec.targets.ascend.opmodel.chip import Chip, chip_of, machine_of_class, nearest_machine, stated
from moec.targets.ascend.opmodel.constants import OP_MODEL_VERSION
from moec.targets.ascend.opmodel.estimate import Estimate, estimate_work
from moec.targets.ascend.opmodel.records import Record, Records
from moec.targets.ascend.opmodel.rows_in import Declined, Row, read_row
from moec.targets.ascend.opmodel.vendor import UNKNOWN, described, on_host_cores

REQUIRED = ("chip", "op", "input_shapes")
OPTIONAL = ("output_shapes", "dtypes", "formats", "block_dim", "freq_mhz", "core_type")
"""Columns that are read where a table has them."""

ANY = "*"
"""Stands for every chip class that is like no machine, and for tables without the column."""

HOST_CORES = "AI_CPU"
"""What the profiler calls the chip's general-purpose cores, which run what has no kernel."""

ADDED = ("predicted_us", "low_us", "high_us", "bound_by", "reason", "assumed", "model")
"""Columns that are appended: microseconds and their band, what limits them; the reason where there is no estimate; what
was taken for granted where there is one; the model's version.
"""

GUESSED = 1.5
"""Factor by which the band of a row widens either way whose chip class is like no machine; and that of an operator that
nobody described.
"""


@dataclass
class Count:
    """Rows read, and those declined by reason's column; ``renamed``: columns of the table that have another name."""

    rows: int = 0
    declined: dict[str, int] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    @property
    def estimated(self) -> int:
        """Rows with an estimate."""
        return self.rows - sum(self.declined.values())


@lru_cache(maxsize=65536)
def estimate_row(row: Row, chip: Chip, wider: float = 1.0) -> tuple[Estimate, tuple[str, ...]]:
    """The estimate of one row, its band ``wider`` either way, and what was taken for granted; Declined where its
    operands do not fit its operator.
    """
    largest = max((*row.ins, *row.outs), key=lambda t: t.bytes, default=None)
    if largest is not None and largest.bytes > chip.memory:
        what = f"{'x'.join(map(str, largest.shape))} takes {largest.bytes / 1024:,.0f} KiB"
        raise Declined(f"input_shapes: {what}, {chip.name} has {chip.memory / 1024:,.0f} KiB")
    if row.core == HOST_CORES:
        return estimate_work(on_host_cores(row.ins, row.outs), chip, 1, wider), row.assumed
    try:
        work, note = described(row.op, row.ins, row.outs, row.result)
    except ValueError as error:
        raise Declined(f"input_shapes: {error}") from None
    except (IndexError, ZeroDivisionError):
        raise Declined(f"input_shapes: operands do not fit {row.op}") from None
    wider *= GUESSED if work.kind == UNKNOWN else 1.0
    return estimate_work(work, chip, row.blocks, wider), (*row.assumed, note) if note else row.assumed


@lru_cache(maxsize=4096)
def chip_for(text: str, machine: str | None, mhz: float | None) -> tuple[Chip, str]:
    """The chip of a class name, or of the ``machine`` that it is mapped to, and what was taken for granted; the row's
    clock and the class's stated clock and cores hold before the machine's own. Declined for a class like no machine.
    """
    name, note = machine or machine_of_class(text), ""
    if name is None:
        name = nearest_machine(text)
        if name is None:
            what = f"no machine is like '{text}'" if text.strip() else "empty"
            raise Declined(f"chip: {what}; map it with --chip-as")
        note = f"chip: '{text}' taken for {name}"
    cores, clock = stated(text)
    return chip_of(load(name), mhz or clock, cores), note


def mapped(text: str, chips: Mapping[str, str]) -> str | None:
    """The machine that ``chips`` gives a class: by its whole name, by the longest beginning, or by ``ANY`` for what is
    like no machine; None where it gives none.
    """
    if not chips:
        return None
    if text in chips:
        return chips[text]
    begun = [c for c in chips if c != ANY and text.lower().startswith(c.lower())]
    if begun:
        return chips[max(begun, key=len)]
    return chips.get(ANY) if machine_of_class(text) is None else None


def estimate_table(
    lines: Iterable[str], out: IO[str], name: str, chips: Mapping[str, str] | None = None, count: Count | None = None
) -> Count:
    """Read a CSV from ``lines``, write it with predictions to ``out``, cells separated as they were.

    ``chips`` maps chip classes to machines; ``name`` stands in refusals. Refusal for a table without a usable header.
    """
    count = count or Count()
    chips = {k.strip(): v for k, v in (chips or {}).items()}
    records = Records(lines)
    if not records.columns:
        raise Refusal(f"{name} is empty", Where(name, 1), f"give a header line with {', '.join(REQUIRED)}")
    at = _columns(records.columns, name, chips)
    writer = csv.writer(out, lineterminator="\n", delimiter=records.separator)
    writer.writerow([*_renamed(records.columns, count), *ADDED])
    for record in records:
        count.rows += 1
        writer.writerow([*record.cells, *_predicted(record, at, chips, count)])
    return count


def _columns(columns: Sequence[str], name: str, chips: Mapping[str, str]) -> dict[str, int]:
    """Places of the columns that are read, by their names in any case, with spaces for underscores."""
    plain = [c.lower().replace(" ", "_") for c in columns]
    problems = []
    for wanted in REQUIRED:
        if wanted not in plain and not (wanted == "chip" and ANY in chips):
            hint = suggest(wanted, columns).replace("did you mean", "is it") or f"columns: {', '.join(columns)}"
            hint += f"; or give --chip-as {ANY}=MACHINE" if wanted == "chip" else ""
            problems.append(Problem(f"no column '{wanted}'", Where(name, 1), hint))
    times = Counter(plain)
    for read in (*REQUIRED, *OPTIONAL):
        if times[read] > 1:
            problems.append(Problem(f"column '{read}' twice", Where(name, 1), "rename one"))
    if problems:
        raise Refusal(problems)
    return {c: plain.index(c) for c in (*REQUIRED, *OPTIONAL) if c in plain}


def _renamed(columns: Sequence[str], count: Count) -> list[str]:
    """The table's columns; one that is called like an added one gets a name of its own."""
    taken = {*columns, *ADDED}
    renamed = []
    for column in columns:
        new = column
        while new in ADDED or (new != column and new in taken):
            new += "_in"
        if new != column:
            count.renamed[column] = new
        renamed.append(new)
    return renamed


def _predicted(record: Record, at: Mapping[str, int], chips: Mapping[str, str], count: Count) -> list[str]:
    try:
        if record.fault:
            raise Declined(f"line {record.line}: {record.fault}")
        row = read_row({column: record.cells[i] for column, i in at.items()})
        text = record.cells[at["chip"]].strip() if "chip" in at else ""
        chip, guessed = chip_for(text, mapped(text, chips), row.mhz)
        e, notes = estimate_row(row, chip, GUESSED if guessed else 1.0)
    except Declined as declined:
        column = str(declined).partition(":")[0].partition(" ")[0]
        count.declined[column] = count.declined.get(column, 0) + 1
        return ["", "", "", "", str(declined), record.note, OP_MODEL_VERSION]
    us = (e.prediction.us, e.low_us, e.high_us)
    assumed = "; ".join(filter(None, (record.note, guessed, *notes)))
    return [*(f"{v:.3f}" for v in us), e.prediction.bound, "", assumed, OP_MODEL_VERSION]
