"""What ``moec eval`` and ``moec run`` share: options for inputs and expected outputs, and the table of errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moec.cli.common import print_table
from moec.diagnostics import Refusal, Where

if TYPE_CHECKING:
    import numpy as np

    from moec.ir.types import DType
    from moec.trial import Trial

Inputs = Annotated[Path, typer.Option("--inputs", metavar="X.npz", help="The inputs.", show_default=False)]
Expect = Annotated[
    Path | None,
    typer.Option(
        "--expect", metavar="X.npz", help="Outputs to compare with (may be the same file).", show_default=False
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        min=0.0,
        help="Largest error allowed, as a share of max(1, largest expected magnitude). "
        "Default: what index.json beside X.npz records, else by dtype.",
        show_default=False,
    ),
]
Save = Annotated[
    Path | None, typer.Option("--save", metavar="Y.npz", help="Write the outputs to this file.", show_default=False)
]


def finish(done: list[Trial], types: Mapping[str, DType], save: Path | None, what: str) -> None:
    """Save and print the trials; CheckFailed where an output is off."""
    from moec.arrays import require_agreement

    if save is not None:
        arrays: dict[str, Any] = {
            f"out{t.case.removeprefix('1')}.{name}": _portable(a) for t in done for name, a in t.outputs.items()
        }
        import numpy as np

        try:
            np.savez(save, **arrays)
        except OSError as error:
            raise Refusal(
                f"cannot write the outputs: {error.strerror}", Where(str(save)), "give a writable --save"
            ) from None
    compared = [(t, d) for t in done for d in t.differences]
    if compared:
        rows = [
            (t.case, d.output, f"{d.absolute:.3e}", f"{d.relative:.3e}", f"{d.tolerance:g}", _verdict(d.agrees))
            for t, d in compared
        ]
        print_table(("case", "output", "max abs error", "max rel error", "tolerance", "agrees"), rows)
    else:
        rows = [
            (t.case, name, f"{types[name]}{list(a.shape)}", *_range(a)) for t in done for name, a in t.outputs.items()
        ]
        print_table(("case", "output", "type", "least", "mean", "largest"), rows)
    for t in done:
        require_agreement(t.differences, what, t.case)


def _portable(array: np.ndarray) -> np.ndarray:
    """The array, as f32 where numpy's file format has no name for its dtype (bf16 and narrower)."""
    return array.astype("float32") if array.dtype.kind == "V" else array


def _range(array: np.ndarray) -> tuple[str, str, str]:
    if not array.size or array.dtype == object:
        return "", "", ""
    wide = array.astype("float64")
    return f"{wide.min():.6g}", f"{wide.mean():.6g}", f"{wide.max():.6g}"


def _verdict(agrees: bool) -> str:
    return "yes" if agrees else "NO"
