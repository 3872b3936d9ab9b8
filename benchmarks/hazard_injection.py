"""Every flag, barrier, padding and buffer bound of every kernel left out in turn: who notices.

For each family of kernels (small programs, see tests/support/injection_vector.py) and each kind of site: how many are
caught by the static checks, how many by a run on the CPU model, and how many there are. An *event* is all statements
of one event at once, so that only the missing order can be noticed. No static check follows values, so paddings have
none. *Room* counts bounds of which neither a witness nor a run uses the last 32 bytes: those are no faults. Runs
without a fault come first, in three orders of the cores, whose results must be the same bytes.

    python benchmarks/hazard_injection.py                      all families
    python benchmarks/hazard_injection.py --only attention     those whose name holds one of the words
    python benchmarks/hazard_injection.py --slice 2/5          the second fifth of them
    python benchmarks/hazard_injection.py --results R.json     add to what earlier runs found; print all of it
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import kernel_writers
from injection import KINDS, Site, sites_of
from injection_all import CASES
from injection_cases import Case
from injection_run import inject, prepared

SEED = 5


def judged(case: Case) -> tuple[list[Site], list[str]]:
    """Every site of a case with its verdicts, and the writers of its kernels."""
    program = case.program()
    sites = [site for kernel in program.kernels for site in sites_of(kernel)]
    with tempfile.TemporaryDirectory() as folder:
        inject(prepared(program, case.runs(np.random.default_rng(SEED)), Path(folder), case.known), sites)
    return sites, sorted({str(kernel_writers.writer_of(k)) for k in program.kernels})


def table(found: Mapping[str, Iterable[Site]]) -> str:
    """Caught statically, caught dynamically and all, by family and kind."""
    rows = [["family", *KINDS, "all", "room"]]
    for name, sites in (*found.items(), ("all", [s for each in found.values() for s in each])):
        count: Counter[tuple[str, str]] = Counter()
        for s in sites:
            if s.is_room:
                count["room", "all"] += 1
                continue
            for kind in (s.kind, "all"):
                count[kind, "all"] += 1
                count[kind, "static"] += s.static is True
                count[kind, "dynamic"] += s.dynamic != ""
        rows.append([name, *(_cell(count, kind) for kind in (*KINDS, "all")), str(count["room", "all"] or "")])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(f"{text:<{w}}" for text, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _cell(count: Counter[tuple[str, str]], kind: str) -> str:
    static = "-" if kind == "pad" else count[kind, "static"]
    return f"{static} {count[kind, 'dynamic']} {count[kind, 'all']}" if count[kind, "all"] else ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD")
    parser.add_argument("--slice", default="1/1", metavar="I/N")
    parser.add_argument("--results", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    part, parts = (int(n) for n in given.slice.split("/"))
    kernel_writers.note()
    found: dict[str, list[Site]] = {}
    if given.results and given.results.exists():
        found = {n: [Site(**s) for s in sites] for n, sites in json.loads(given.results.read_text()).items()}
    for case in CASES[part - 1 :: parts]:
        if given.only and not any(word in case.name for word in given.only):
            continue
        found[case.name], writers = judged(case)
        print(f"{case.name}: {len(found[case.name])} sites in kernels of {', '.join(writers)}", file=sys.stderr)
        if given.results:
            texts = {name: [asdict(s) for s in sites] for name, sites in found.items()}
            given.results.write_text(json.dumps(texts, indent=1) + "\n")
    print("caught by the static checks, caught by a run, all\n")
    print(table(found))
    for what, missed in (
        ("a run", [s for sites in found.values() for s in sites if not s.dynamic and not s.is_room]),
        ("the static checks", [s for sites in found.values() for s in sites if s.static is False and not s.is_room]),
    ):
        print(f"\nnot caught by {what}: {len(missed)}")
        for s in missed:
            print(f"  {s.kernel}: {s.kind} {s.text} ({s.mask})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
