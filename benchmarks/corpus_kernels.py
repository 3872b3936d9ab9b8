"""Real exports of MoE blocks and layers through ``moec compile`` and ``moec run``, against the outputs they came with.

Of every f32, f16 and bf16 block and single layer of a folder of exports (``NAME.onnx`` with inputs and outputs in
``NAME.npz`` and a record in ``index.json``) it says whether the emitted kernels, built against the CPU model, *agree*
at every stored size, *differ*, or are *refused*, and of which op. A run agrees where its error is at most four times
that of the stored output against 64-bit floats, and within what the record allows. Objects are cached by content.

    python benchmarks/corpus_kernels.py FOLDER                     all of them
    python benchmarks/corpus_kernels.py FOLDER mixtral jetmoe_moe  those whose name holds one of the words
    python benchmarks/corpus_kernels.py FOLDER --slice 2/5         the second fifth
    python benchmarks/corpus_kernels.py FOLDER --results R.json    add to what earlier slices found; print all of it
    python benchmarks/corpus_kernels.py FOLDER --results R.json --new   those that R.json does not hold yet
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from moec import driver
from moec import eval as reference
from moec.arrays import cases, expected_outputs, match_outputs, read_npz, recorded_tolerance
from moec.diagnostics import CheckFailed, Refusal
from moec.execute import Project

DTYPES = ("fp32", "fp16", "bf16")
PARTS = ("moe", "layer")
VERDICTS = ("agree", "refused", "differ")
ERRORS = 4
"""How many times the stored output's own error a run may be off."""


@dataclass(frozen=True)
class Found:
    """What came of one export; ``reason`` names the op refused, or the output that is off."""

    name: str
    family: str
    part: str
    exporter: str
    dtype: str
    verdict: str
    reason: str
    seconds: float


def records(folder: Path) -> list[dict[str, Any]]:
    """Records of the blocks and layers that are computed in floats."""
    found = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    return [
        r for r in found if r["part"] in PARTS and r["dtype"] in DTYPES and (folder / f"{r['name']}.onnx").is_file()
    ]


def judge(folder: Path, record: Mapping[str, Any]) -> Found:
    """Compile, build and run one export at every stored size."""
    start = time.monotonic()
    name = record["name"]
    try:
        with tempfile.TemporaryDirectory(prefix="moec-corpus-") as scratch:
            out = Path(scratch) / name
            done = driver.compile(folder / f"{name}.onnx", out)
            if done.program is None:
                verdict, reason = "refused", "; ".join(done.summary["not_lowered"])
            else:
                verdict, reason = _compared(folder, record, Project(out))
    except CheckFailed as failure:
        verdict, reason = "differ", str(failure)
    except Refusal as refusal:
        verdict, reason = "refused", str(refusal)
    fields = (record[k] for k in ("family", "part", "exporter", "dtype"))
    return Found(name, *fields, verdict, reason, round(time.monotonic() - start, 1))


def _compared(folder: Path, record: Mapping[str, Any], project: Project) -> tuple[str, str]:
    """The verdict on every output at every size that the record calls right."""
    name, checks = record["name"], record["checks"]
    module = driver.load(folder / f"{name}.onnx")
    stored = read_npz(folder / f"{name}.npz")
    tolerance = recorded_tolerance(checks)
    compared, wrong = 0, []
    for case in cases(stored, stored):
        expected = match_outputs(module.main.output_names, expected_outputs(case, checks), folder)
        if not expected:
            continue
        exact = reference.run(module, case.inputs, fp64=True)
        actual = project.run(case.inputs)
        for key, array in expected.items():
            compared += 1
            allowed = ERRORS * off(array, exact[key])
            if tolerance is not None:
                allowed = min(allowed, tolerance * max(1.0, float(np.abs(array).max())))
            error = off(actual[key], array)
            if not error <= allowed:
                wrong.append(f"'{key}' of case {case.name or 1} is off by {error:.3g} (allowed {allowed:.3g})")
    if wrong:
        return "differ", "; ".join(wrong)
    return ("agree", "") if compared else ("refused", "no stored output is right")


def off(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference; infinite between different shapes."""
    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0.0))


def table(found: Sequence[Found]) -> str:
    """Verdicts by family and exporter, then what does not agree."""
    by: dict[tuple[str, str], Counter[str]] = {}
    for f in sorted(found, key=lambda f: (f.family, f.exporter)):
        by.setdefault((f.family, f.exporter), Counter())[f.verdict] += 1
    rows = [(*key, *(str(count[v]) for v in VERDICTS)) for key, count in by.items()]
    total = Counter(f.verdict for f in found)
    rows = [("family", "exporter", *VERDICTS), *rows, ("total", "", *(str(total[v]) for v in VERDICTS))]
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True)))
             for r in rows]  # fmt: skip
    lines += [f"{f.verdict}: {f.name}: {f.reason}" for f in found if f.verdict != "agree"]
    return "\n".join(lines)


def main() -> int:
    """Judge what is asked for; 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--slice", default="1/1")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--new", action="store_true")
    asked = parser.parse_args()
    part, parts = map(int, asked.slice.split("/"))
    chosen = [r for r in records(asked.folder) if not asked.words or any(w in r["name"] for w in asked.words)]
    found: dict[str, Found] = {}
    if asked.results and asked.results.is_file():
        found = {f["name"]: Found(**f) for f in json.loads(asked.results.read_text(encoding="utf-8"))}
    for record in chosen[part - 1 :: parts]:
        if asked.new and record["name"] in found:
            continue
        one = judge(asked.folder, record)
        found[one.name] = one
        print(f"{one.verdict:8} {one.seconds:6.1f} s  {one.name}  {one.reason}", file=sys.stderr, flush=True)
        if asked.results:
            asked.results.write_text(json.dumps([asdict(f) for f in found.values()], indent=1), encoding="utf-8")
    print(table(list(found.values())))
    return 1 if any(f.verdict == "differ" for f in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
