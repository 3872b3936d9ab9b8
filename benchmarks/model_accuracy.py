"""How far the operator model is from measured kernels, by class of operator, and on rows that it was not fitted to.

For each operator of a table of measured rows: median and 90th-percentile error of the model as committed, of the naive
roofline (FLOP / peak or bytes / HBM rate, whichever is longer) and of a scale and an offset fitted to that roofline.
Then with constants fitted anew without each operator in turn, and without each source; and how many of these left-out
rows lie in their bands. An error is |predicted / measured - 1|.

    python benchmarks/model_accuracy.py                       the sample that is committed
    python benchmarks/model_accuracy.py measured.csv          another table
    python benchmarks/model_accuracy.py measured.csv --write  also fit the constants and bands to it and store them
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from functools import partial
from math import exp, log
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from moec.targets.ascend.opmodel import bands as bands_file
from moec.targets.ascend.opmodel import constants as constants_file
from moec.targets.ascend.opmodel.bands import LAUNCH, UNSEEN, Band, band_of
from moec.targets.ascend.opmodel.constants import OP_MODEL_VERSION, Constants, constants
from moec.targets.ascend.opmodel.fit import (
    Sample,
    band_class,
    covered,
    draw_bands,
    errors,
    fit,
    left_out,
    priors,
    read_samples,
)

SAMPLE = Path(__file__).parents[1] / "targets" / "ascend" / "data" / "measured_sample.csv"

Array = np.ndarray


def roofline(s: Sample) -> float:
    """Microseconds of FLOP at the peak of all cores or of bytes at the HBM rate, whichever takes longer."""
    flops = sum(g.flops / (2 * s.chip.macs(g.dtype) * s.chip.aic * s.chip.mhz) for g in s.work.gemms)
    return max(flops, s.work.moved / s.chip.hbm_rate * 1e6, 1e-3)


def scaled(samples: Sequence[Sample]) -> Array:
    """Errors of scale x roofline + offset, both fitted to all rows (least absolute error in logarithms)."""
    base = np.array([roofline(s) for s in samples])
    measured = np.log([s.us for s in samples])

    def miss(x: Array) -> float:
        return float(np.abs(np.log(exp(x[0]) * base + exp(x[1])) - measured).mean())

    best = minimize(miss, np.array([0.3, 1.0]), method="Nelder-Mead").x
    return np.asarray(np.log(exp(best[0]) * base + exp(best[1])) - measured)


def shown(found: Array) -> str:
    """Median and 90th percentile in per cent."""
    relative = np.abs(np.expm1(found)) * 100
    return f"{np.median(relative):7.1f} {np.quantile(relative, 0.9):7.1f}"


def _is_of(op: str, s: Sample) -> bool:
    return s.op == op


def table(samples: Sequence[Sample], columns: Sequence[tuple[str, Array]]) -> None:
    """One line an operator, then those of the vendor, and all."""
    print(f"{'operator':28} rows" + "".join(f"  {name:>15}" for name, _ in columns))
    print(" " * 33 + "  median  90th %" * len(columns))

    def line(name: str, chosen: Callable[[Sample], bool]) -> None:
        at = [i for i, s in enumerate(samples) if chosen(s)]
        if at:
            print(f"{name:28} {len(at):4}" + "".join(f"  {shown(found[at])}" for _, found in columns))

    for op in sorted({s.op for s in samples}):
        line(op, partial(_is_of, op))
    print()
    line("the vendor's kernels", lambda s: s.tuned)
    line("tutorial kernels", lambda s: not s.tuned)
    line("all", lambda s: True)


def held_out(samples: Sequence[Sample]) -> Array:
    """Print errors and coverage of left-out operators and sources; the errors of left-out operators."""
    by_op = left_out(samples, lambda s: s.op)
    by_source = left_out(samples, lambda s: s.source)
    tuned = [i for i, s in enumerate(samples) if s.tuned]
    print("\nconstants fitted without           median  90th %   the vendor's kernels alone")
    print(f"  the operator                    {shown(by_op)}   {shown(by_op[tuned])}")
    print(f"  the source                      {shown(by_source)}   {shown(by_source[tuned]) if tuned else ''}")
    for source in sorted({s.source for s in samples}):
        at = [i for i, s in enumerate(samples) if s.source == source]
        print(f"    {source:31} {shown(by_source[at])}")
    c = constants()
    classes = [band_class(s, c) for s in samples]
    committed = [band_of(s.work.kind, LAUNCH if k == LAUNCH else "") for s, k in zip(samples, classes, strict=True)]
    fresh = _unseen_bands(samples, classes, by_op)
    print("\nrows inside their bands                all   the vendor's kernels")

    def line(title: str, found: Array, bands: Sequence[Band]) -> None:
        print(f"  {title:34} {covered(found, bands):4.0%}   {covered(found[tuned], [bands[i] for i in tuned]):4.0%}")

    line("as committed, operator left out", by_op, committed)
    line("as committed, source left out", by_source, committed)
    line("drawn without the operator", by_op, fresh)
    by_class = left_out(samples, lambda s: s.work.kind)
    line("class left out, as one without rows", by_class, _unseen_classes(samples, classes, by_op))
    print(f"\n  errors of left-out classes      {shown(by_class)}   {shown(by_class[tuned])}")
    return by_op


def _drawn(samples: Sequence[Sample], classes: Sequence[str], found: Array, chosen: Sequence[int]) -> dict[str, Band]:
    """Bands from those of the ``chosen`` rows that are the vendor's kernels; teaching examples begin with slow ones."""
    kept = [i for i in chosen if samples[i].tuned]
    return draw_bands([classes[i] for i in kept], found[kept])


def _unseen_bands(samples: Sequence[Sample], classes: Sequence[str], found: Array) -> list[Band]:
    """The band of each row drawn from the rows of other operators only."""
    drawn: dict[str, dict[str, Band]] = {}
    for op in sorted({s.op for s in samples}):
        drawn[op] = _drawn(samples, classes, found, [i for i, s in enumerate(samples) if s.op != op])
    return [drawn[s.op].get(k, drawn[s.op][UNSEEN]) for s, k in zip(samples, classes, strict=True)]


def _unseen_classes(samples: Sequence[Sample], classes: Sequence[str], found: Array) -> list[Band]:
    """The band that each row would have if no row of its class had been measured."""
    drawn: dict[str, dict[str, Band]] = {}
    for kind in sorted({s.work.kind for s in samples}):
        drawn[kind] = _drawn(samples, classes, found, [i for i, s in enumerate(samples) if s.work.kind != kind])
    return [
        drawn[s.work.kind].get(LAUNCH if k == LAUNCH else UNSEEN, drawn[s.work.kind][UNSEEN])
        for s, k in zip(samples, classes, strict=True)
    ]


def write_constants(c: Constants) -> None:
    """Store the fitted values; everything else of the file stays."""
    path = constants_file.FILE
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    fitted = priors()
    for row in rows:
        if row["name"] in fitted:
            row["value"] = f"{getattr(c, row['name']):.3g}"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_bands(drawn: dict[str, Band]) -> None:
    """Store the bands by class."""
    with bands_file.FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["class", "low", "high", "rows"])
        writer.writerows([name, f"{b.low:.2f}", f"{b.high:.2f}", b.rows] for name, b in sorted(drawn.items()))


def main() -> None:
    """Read the table, print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", type=Path, default=SAMPLE, help="a CSV of measured rows")
    parser.add_argument("--fast", action="store_true", help="leave out the refits")
    parser.add_argument("--write", action="store_true", help="store constants and bands fitted to this table")
    args = parser.parse_args()
    samples, skipped = read_samples(args.table)
    c = constants()
    if args.write:
        c = fit(samples)
        write_constants(c)
        constants_file.constants.cache_clear()
    print(f"model {OP_MODEL_VERSION}, {len(samples)} rows of {args.table.name}, {len(skipped)} without an estimate")
    for reason in skipped:
        print(f"  {reason}")
    naive = np.array([log(roofline(s) / s.us) for s in samples])
    table(samples, [("model", errors(samples, c)), ("roofline", naive), ("scale + offset", scaled(samples))])
    if args.fast:
        return
    by_op = held_out(samples)
    if args.write:
        classes = [band_class(s, c) for s in samples]
        write_bands(_drawn(samples, classes, by_op, range(len(samples))))


if __name__ == "__main__":
    main()
