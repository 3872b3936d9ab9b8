"""One row of an operator table as tensors and a chip: shapes, dtypes and formats as the vendor's profiler writes them.

Operands are separated by ``;``, dimensions by ``,``; an empty shape is a scalar; ``FLOAT;DT_BF16 -> FLOAT`` gives the
dtypes of inputs and outputs, an undefined one an operand that is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from moec.targets.ascend.opmodel.tensor import Tensor, dtype_of


class Declined(ValueError):
    """A row that no estimate can be made for; the message names the column and the reason."""


@dataclass(frozen=True)
class Row:
    """An operator with its operands, and the core count and clock that the row states (None where it does not).

    ``core``: the kind of core that the row says it ran on, as the profiler writes it; "" where it does not.
    """

    op: str
    ins: tuple[Tensor, ...]
    outs: tuple[Tensor, ...]
    blocks: int | None
    mhz: float | None
    core: str = ""


DEFAULT_DTYPE = "FLOAT16"
"""Where a table has no dtypes."""


def read_row(cells: Mapping[str, str]) -> Row:
    """The row of these cells by column; Declined for what cannot be read."""
    op = cells.get("op", "").strip()
    if not op:
        raise Declined("op: empty")
    types = cells.get("dtypes", "").strip() or DEFAULT_DTYPE
    forms = cells.get("formats", "").strip() or "ND"
    ins = _operands(cells.get("input_shapes", ""), _side(types, 0), _side(forms, 0), "input_shapes")
    outs = _operands(cells.get("output_shapes", ""), _side(types, 1), _side(forms, 1), "output_shapes")
    if "->" not in types and not cells.get("output_shapes", "").strip():
        outs = ()
    blocks = _number(cells, "block_dim")
    mhz = _number(cells, "freq_mhz")
    return Row(op, ins, outs, int(blocks) if blocks else None, mhz or None, cells.get("core_type", "").strip())


def _side(text: str, which: int) -> str:
    left, arrow, right = text.partition("->")
    if which == 0:
        return left.strip()
    return right.strip() if arrow else left.split(";")[0].strip()


def _number(cells: Mapping[str, str], column: str) -> float | None:
    text = cells.get(column, "").strip()
    if not text or text.upper() == "N/A":
        return None
    try:
        value = float(text)
    except ValueError:
        raise Declined(f"{column}: '{text}' is no number") from None
    if not 0 <= value < 1e6:
        raise Declined(f"{column}: {text} is out of range")
    return value


@lru_cache(maxsize=65536)
def _operands(shapes: str, types: str, forms: str, column: str) -> tuple[Tensor, ...]:
    parts = shapes.replace('"', "").split(";")
    names = [t.strip() for t in types.split(";")]
    layouts = [f.strip().partition("(")[0] for f in forms.split(";")]
    if len(names) > 1 and len(names) < len(parts):
        names += [names[-1]] * (len(parts) - len(names))
    found = []
    for i, text in enumerate(parts):
        try:
            kind = dtype_of(names[min(i, len(names) - 1)])
        except ValueError as error:
            raise Declined(f"dtypes: {error}") from None
        if kind is not None:
            found.append(Tensor(_shape(text, column), kind, layouts[min(i, len(layouts) - 1)]))
    return tuple(found)


def _shape(text: str, column: str) -> tuple[int, ...]:
    dims = [d.strip() for d in text.strip().strip("[](),").replace("x", ",").split(",")]
    if dims == [""] or dims == ["N/A"]:
        return ()
    if not all(d.isascii() and d.isdecimal() for d in dims):
        raise Declined(f"{column}: '{text.strip()}' is no shape of known sizes")
    sizes = tuple(int(d) if len(d) < 40 else 1 << 64 for d in dims)
    if prod(sizes) >= 1 << 50:
        raise Declined(f"{column}: '{text.strip()}' has more elements than any memory")
    return sizes
