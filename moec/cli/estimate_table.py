"""``moec estimate --table``: a CSV of operators in, the same with estimates out, row by row."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from moec.diagnostics import Refusal, Usage, Where


def estimate_rows(table: Path, out: Path | None, chip_as: Sequence[str]) -> None:
    """Write ``table`` with estimates to ``out`` (stdout where None) and say on stderr how many rows have one.

    Nothing is left at ``out``, or written to stdout, where the table is refused. Text that is no UTF-8 stays as it is.
    """
    from moec.targets.ascend.opmodel.constants import OP_MODEL_VERSION
    from moec.targets.ascend.opmodel.table import Count, estimate_table

    chips = _chips(chip_as)
    count = Count()
    try:
        with table.open(encoding=_encoding(table), errors="surrogateescape", newline="") as lines:
            if out is None:
                _to_stdout(lambda file: estimate_table(lines, file, table.name, chips, count))
            else:
                _into(out, lambda file: estimate_table(lines, file, table.name, chips, count))
    except OSError as error:
        raise Refusal(
            f"{error.strerror}: {error.filename}", Where(str(table)), "name a file that can be read"
        ) from None
    declined = ", ".join(f"{n} by {column}" for column, n in sorted(count.declined.items()))
    text = f"moec: {count.estimated} of {count.rows} rows estimated" + (f" (declined: {declined})" if declined else "")
    print(f"{text}; model {OP_MODEL_VERSION}", file=sys.stderr)
    for old, new in count.renamed.items():
        print(f"moec: the table's column '{old}' is '{new}' now, as '{old}' is one that is added", file=sys.stderr)


def _encoding(table: Path) -> str:
    """UTF-16 where the file begins with its mark, else UTF-8."""
    with table.open("rb") as file:
        return "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _to_stdout(write: Callable[[TextIO], object]) -> None:
    """Write to stdout what is whole."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape", newline="") as file:
        write(file)
        file.seek(0)
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="surrogateescape")
        shutil.copyfileobj(file, sys.stdout)


def _into(out: Path, write: Callable[[TextIO], object]) -> None:
    """Write to a file beside ``out`` that takes its place once it is whole."""
    if out.is_dir():
        raise Refusal(f"cannot write {out}: it is a folder", todo="name a file")
    try:
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    except OSError as error:
        raise Refusal(f"cannot write {out}: {error.strerror}", todo="name a file in a folder that exists") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            write(file)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _chips(settings: Sequence[str]) -> Mapping[str, str]:
    """Machines by chip class from ``CLASS=MACHINE``; Usage for what is no such setting, Refusal for no machine."""
    from moec.targets.ascend.machine import load

    chips = {}
    for setting in settings:
        kind, equals, machine = setting.rpartition("=")
        if not equals or not kind.strip():
            raise Usage(f"--chip-as: '{setting}' is no CLASS=MACHINE", todo='write --chip-as "910B2-class=ascend910b2"')
        chips[kind.strip()] = load(machine.strip()).name
    return chips
