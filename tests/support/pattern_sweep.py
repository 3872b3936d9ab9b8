"""What the detectors of ``onnx_patterns`` find in exports against what ``moec explain`` says of the same nodes.

    python tests/support/pattern_sweep.py FOLDER [NAME ...]

prints a table, a line a file and a column a pattern: sites that fired / that were refused with a reason / that neither
was said of (which is a disagreement), and then every refusal.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from onnx_graph import RawGraph
from onnx_patterns import DETECTORS, Site
from onnx_patterns_moe import MOE_DETECTORS

PASSES = {
    "rotate-half": ("recover-rope", "rotate-half-elim"),
    "turned-pairs": ("recover-rope",),
    "attention": ("recover-attention",),
    "concat-halves": ("rope-concat-elim",),
    "partial-rotary": ("recover-rope", "fuse-rope"),
    "shared-rope-key": ("rope-concat-elim",),
    "padded-values": ("rect-attention",),
    "norm": ("fuse-norm", "fuse-residual"),
    "norm-op": ("fuse-norm", "fuse-residual"),
    "residual-norm": ("fuse-residual", "fuse-norm"),
    "gated-activation": ("recover-moe", "fuse-swiglu", "canonicalise"),
    "silu-gradient": ("fuse-swiglu", "fuse-vector"),
    "softmax-gradient": ("fuse-vector",),
    "router": ("recover-moe", "fuse-gating"),
    "sort": ("recover-moe", "permute-fusion"),
    "nonzero": ("recover-moe",),
    "one-hot": ("recover-moe", "permute-fusion"),
    "repeated-tokens": ("recover-moe", "permute-fusion"),
    "gathered-weights": ("recover-moe",),
    "combined-rows": ("recover-moe", "permute-fusion"),
}
"""The passes that take a pattern up."""

OF_A_BLOCK = ("router", "sort", "nonzero", "one-hot", "repeated-tokens", "gathered-weights", "combined-rows")
"""Patterns of an expert block: one that recover-moe refuses is refused with all that it consists of."""


@dataclass(frozen=True)
class Verdict:
    """What was said of a site: the rules that fired there, or the reasons why not."""

    site: Site
    label: str
    fired: tuple[str, ...]
    refused: tuple[str, ...]

    @property
    def kind(self) -> str:
        """fired, refused or silent."""
        return "fired" if self.fired else "refused" if self.refused else "silent"


def explained(path: Path) -> list[dict[str, Any]]:
    """What ``moec explain --json`` prints for the default passes and target."""
    from moec.driver import DEFAULT_TARGET, load_target
    from moec.explain import explain
    from moec.passes.base import default_passes

    entries = explain(path, default_passes(), load_target(DEFAULT_TARGET), {}, lambda name: nullcontext())
    return [e.json() for e in entries]


def sweep(path: Path, entries: list[dict[str, Any]] | None = None) -> list[Verdict]:
    """A verdict on every site in a file."""
    g = RawGraph(path)
    entries = explained(path) if entries is None else entries
    moved = _Copies(entries)
    sites = [s for find in (*DETECTORS, *MOE_DETECTORS) for s in dict.fromkeys(find(g))]
    choices = [s.key for s in sites if s.pattern == "router"]
    found = []
    for site in sites:
        nodes = {moved.seen(n) for n in site.nodes}
        fired: dict[str, None] = {}
        refused: dict[str, None] = {}
        for e in entries:
            if e["pass"].partition("{")[0] not in PASSES[site.pattern]:
                continue
            if site.pattern == "gated-activation" and e["pass"] == "canonicalise" and "glu" not in e["rule"]:
                continue
            if any(nodes <= set(at["lines"]) for at in e["fired"]):
                fired[e["rule"]] = None
            for at in e["near_misses"]:
                block = site.pattern in OF_A_BLOCK and e["rule"] == "recover-moe"
                if nodes & set(at["lines"]) or (block and _same_block(site.key, at["lines"], choices, moved)):
                    refused[f"{e['rule']}: {at['reason']}"] = None
        found.append(Verdict(site, g.label(site.key), tuple(fired), tuple(refused)))
    return found


class _Copies:
    """Layers that are alike: which copy's nodes stand for all."""

    def __init__(self, entries: list[dict[str, Any]]):
        places = [at for e in entries for at in (*e["fired"], *e["near_misses"])]
        self.starts = sorted({tuple(at["called_at"]) for at in places if len(at.get("called_at", ())) > 1})

    def seen(self, node: int) -> int:
        """The node of the second copy, which provenance names, for one of any copy."""
        for starts in self.starts:
            period = starts[1] - starts[0]
            if starts[0] <= node < starts[-1] + period:
                return int(starts[1] + (node - starts[0]) % period)
        return node


def _same_block(node: int, blamed: Iterable[int], choices: list[int], moved: _Copies) -> bool:
    """Whether the router before a node (or the node itself) is among those that a refusal names."""
    before = [c for c in choices if c <= node] or choices[:1]
    first = [c for c in choices if c > node][:1]
    near = {moved.seen(c) for c in [*before[-3:], *first]}
    return bool(near & set(blamed))


def table(verdicts: dict[str, list[Verdict]]) -> str:
    """Files by patterns: fired / refused / silent, a dot where there is none."""
    used = [p for p in PASSES if any(v.site.pattern == p for vs in verdicts.values() for v in vs)]
    rows = [["file", *used]]
    for name, vs in verdicts.items():
        counts = Counter((v.site.pattern, v.kind) for v in vs)
        cells = [[counts[p, kind] for kind in ("fired", "refused", "silent")] for p in used]
        rows.append([name, *("/".join(map(str, c)) if any(c) else "." for c in cells)])
    total = Counter((v.site.pattern, v.kind) for vs in verdicts.values() for v in vs)
    rows.append(["total", *("/".join(str(total[p, k]) for k in ("fired", "refused", "silent")) for p in used)])
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows)


def main() -> None:
    """Print the table of a folder, and every site that did not fire."""
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    files = [folder / f"{n}.onnx" for n in names] if names else sorted(folder.glob("*.onnx"))
    verdicts = {f.stem: sweep(f) for f in files}
    print(table(verdicts))
    for name, vs in verdicts.items():
        for v in vs:
            if v.kind != "fired":
                print(f"{name}: {v.site.pattern} at {v.label}: {v.kind}", *v.refused, sep="\n    ")


if __name__ == "__main__":
    main()
