"""One row of an operator table as tensors: shapes, dtypes and formats as the vendor's profiler writes them, and as
people do.

Operands are separated by ``;``, dimensions by ``,``; an empty shape is a scalar; ``FLOAT;DT_BF16 -> FLOAT`` gives the
dtypes of inputs and outputs, an undefined one an operand that is absent. Read as well: ``[8192,7168];[7168]``,
``[8192,7168],[7168]``, ``8192x7168``, quotes, and cells that hold no number where none is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, prod

from moec.targets.ascend.opmodel.tensor import Tensor, dtype_of, width_of


class Declined(ValueError):
    """A row that no estimate can be made for; the message names the column and the reason."""


@dataclass(frozen=True)
class Row:
    """An operator with its operands, and the core count and clock that the row states (None where it does not).

    ``core``: the kind of core that the row says it ran on, as the profiler writes it; "" where it does not.
    ``result``: the dtype of a result whose shape the row does not give; ``outs`` are then empty.
    ``assumed``: what had to be taken for granted to read it.
    """

    op: str
    ins: tuple[Tensor, ...]
    outs: tuple[Tensor, ...]
    blocks: int | None
    mhz: float | None
    core: str = ""
    result: str = ""
    assumed: tuple[str, ...] = ()


DEFAULT_DTYPE = "FLOAT16"
"""Where a table has no dtypes."""

NOTHING = ("", "N/A", "NA", "NAN", "NONE", "NULL", "-", "[]", "()")
"""Cells and shapes that say nothing."""

SIZE = re.compile(r"[0-9]+(\.0*)?")
"""A dimension, with the fraction that spreadsheets add."""

BETWEEN = re.compile(r"(?<=[0-9])\s*[xX*]\s*(?=[0-9])")
"""What stands between dimensions besides commas."""

LARGEST = 1 << 50
"""Elements that no memory holds."""


def read_row(cells: Mapping[str, str]) -> Row:
    """The row of these cells by column; Declined for what cannot be read."""
    op = cells.get("op", "").strip()
    if not op:
        raise Declined("op: empty")
    notes: list[str] = []
    types, forms = _stated(cells, "dtypes"), _stated(cells, "formats") or "ND"
    if not types:
        types = DEFAULT_DTYPE
        notes.append(f"dtypes: none given, {DEFAULT_DTYPE} taken")
    types, forms = (text.replace("=>", "->").replace("\N{RIGHTWARDS ARROW}", "->") for text in (types, forms))
    shapes, results = cells.get("input_shapes", ""), cells.get("output_shapes", "")
    ins, odd = _operands(shapes, _side(types, 0), _side(forms, 0), "input_shapes")
    outs, odd_out = _operands(results, _side(types, 1), _side(forms, 1), "output_shapes")
    notes += [*odd, *(n for n in odd_out if n not in odd)]
    result = ""
    if not _clean(results) and ("->" not in types or any(t.numel > 1 for t in ins)):
        result, outs = (outs[0].dtype if outs else ""), ()
    blocks, mhz = (_number(cells, column, notes) for column in ("block_dim", "freq_mhz"))
    core = cells.get("core_type", "").strip()
    return Row(op, ins, outs, int(blocks) if blocks else None, mhz or None, core, result, tuple(notes))


def _stated(cells: Mapping[str, str], column: str) -> str:
    text = _clean(cells.get(column, ""))
    return "" if text.upper() in NOTHING and text.upper() != "N/A" else text


def _clean(text: str) -> str:
    return text.replace('"', "").replace("'", "").strip()


def _side(text: str, which: int) -> str:
    left, arrow, right = text.partition("->")
    if which == 0:
        return left.strip()
    return right.strip() if arrow else re.split("[;,]", left)[0].strip()


def _number(cells: Mapping[str, str], column: str, notes: list[str]) -> float | None:
    """The number of a column that a row may do without; what is no sensible number counts as not given."""
    text = cells.get(column, "").strip()
    if text.upper() in NOTHING:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if isfinite(value) and 0 <= value < 1e6:
        return value
    notes.append(f"{column}: '{text}' left out")
    return None


@lru_cache(maxsize=65536)
def _operands(shapes: str, types: str, forms: str, column: str) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """The operands of one side, absent ones left out, and what was taken for granted."""
    parts = _parts(_clean(shapes))
    kinds, notes = _dtypes(types)
    layouts = _layouts(forms)
    found = []
    for i, text in enumerate(parts):
        kind = kinds[min(i, len(kinds) - 1)]
        if kind is not None:
            found.append(Tensor(_shape(text, column), kind, layouts[min(i, len(layouts) - 1)]))
    return tuple(found), notes


@lru_cache(maxsize=4096)
def _layouts(forms: str) -> tuple[str, ...]:
    return tuple(f.strip().partition("(")[0] for f in re.split(";" if ";" in forms else ",", forms))


@lru_cache(maxsize=4096)
def _dtypes(types: str) -> tuple[tuple[str | None, ...], tuple[str, ...]]:
    """moec's dtypes of the names in ``types``, the last of which holds for further operands, and what was taken for
    granted: an unknown one for one of its width, else for that of another operand.
    """
    names = [t.strip() for t in re.split(";" if ";" in types else ",", types)]
    kinds: list[str | None] = []
    unknown: list[int] = []
    for name in names:
        try:
            kinds.append(dtype_of(name))
        except ValueError:
            unknown.append(len(kinds))
            kinds.append(width_of(name))
    other = next((k for k in kinds if k), dtype_of(DEFAULT_DTYPE))
    notes = []
    for i in unknown:
        kinds[i] = kinds[i] or other
        notes.append(f"dtypes: unknown '{names[i]}' taken for {kinds[i]}")
    return tuple(kinds), tuple(dict.fromkeys(notes))


def _parts(shapes: str) -> list[str]:
    """The texts of single shapes."""
    if ";" in shapes:
        return shapes.split(";")
    grouped = re.findall(r"[\[({]([^\[\](){}]*)[\])}]", shapes)
    return grouped or [shapes]


@lru_cache(maxsize=65536)
def _shape(text: str, column: str) -> tuple[int, ...]:
    bare = text.strip().strip("[](){},").strip()
    if bare.upper() in NOTHING or bare.lower() == "scalar":
        return ()
    dims = [d for d in re.split(r"[,\s]+", BETWEEN.sub(",", bare)) if d]
    if not all(SIZE.fullmatch(d) for d in dims):
        raise Declined(f"{column}: '{text.strip()}' is no shape of known sizes")
    sizes = tuple(int(d.partition(".")[0]) if len(d) < 40 else LARGEST for d in dims)
    if prod(sizes) >= LARGEST:
        raise Declined(f"{column}: '{text.strip()}' has more elements than any memory")
    return sizes
