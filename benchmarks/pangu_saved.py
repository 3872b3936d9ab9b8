"""Saved activations of a layer of Pangu Ultra MoE: what each choice takes away, beside an estimate made by hand.

    python benchmarks/pangu_saved.py [--times]

Micro-batch 2, sequence 8192, tensor parallel 8, expert parallel 32 with balanced experts (arXiv 2505.04519); MiB of a
layer and micro-batch, and GiB on the first of 16 pipeline stages, where 47 chunks of 2 layers wait for their backward.
The estimate lists tensors by their sizes alone: it knows neither what backward reads nor what a rewrite leaves.
``--times`` adds microseconds of what is computed again, of the device model (an exchange of a balanced load).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from moec.autodiff import saved_values
from moec.driver import load_target
from moec.ir.graph import Module
from moec.passes.base import TRAIN_PIPELINE, Context, PassManager, parse_passes
from moec.passes.node_price import TargetPrices
from moec.sources import load
from moec.timeline.balance import balanced_sizes

LAYER = Path(__file__).resolve().parents[1] / "examples" / "pangu_ultra_moe_rank.moe"
SIZES = {"p": 1024, "mbs": 2}
IN_FLIGHT = 94
MIB = 1 << 20
FRONT = TRAIN_PIPELINE.split(",fuse-residual")[0] + ",inline,canonicalise,cse,dce"
TIDY = ",cse,canonicalise,cse,dce"

ITEMS: list[tuple[str, float, tuple[str, ...], str]] = [
    ("queries, keys, values, attention's output", 96 + 96 + 64 + 64,
     ("slice.2", "slice.3", "slice.4", "q_rope", "k_rope", "mixed"),
     "rope-concat-elim: no concatenated halves; the rotated part of keys once, not for each of 16 heads"),
    ("softmax statistics", 16, ("attention_stats.softmax_max", "attention_stats.softmax_sum"),
     "the estimate repeats maximum and sum 8 times each, as the library operator writes them"),
    ("latents", 2 * 6 + 2 * 2.25, ("matmul", "slice", "all_gather", "kv_latent"),
     "the estimate has this rank's positions, before and after norms; here the normed ones as gathered of 8 ranks"),
    ("rows of the residual's width", 5 * 30, ("a", "mixed.2", "h", "rms_norm", "add"),
     "the estimate has the layer's input, which here the layer before gives (30 more if counted), not the last norm's"),
    ("shared expert", 16 + 8, ("matmul.3", "swiglu"), ""),
    ("rows that came to the experts", 240, ("gather",), ""),
    ("experts' first product", 128, ("grouped_matmul",), ""),
    ("experts' activation", 64, ("inner",), ""),
    ("experts' outputs as they came back", 240, ("all_to_all_v",), ""),
    ("router, choices, orders, angles", 0,
     ("matmul.2", "experts", "probs", "positions", "load", "coming", "leaving", "order", "scatter_elements", "cast",
      "cast.2"),
     "too small for the estimate: logits and angles of rotation 3 MiB, the rest are indices"),
]  # fmt: skip
"""What is saved without any choice: the estimate's MiB, the saves, and why they differ."""

STEPS: list[tuple[str, str, str, float, str]] = [
    ("weights before GMM2", "", "", 240,
     "the same 240; the weights stay as sorted, with their places (1/8 MiB), instead of as chosen (1/16)"),
    ("act", "act", "", 64, "also the shared expert's activation (8) and the tables of angles (1)"),
    ("dispatch", "dispatch", "", 240, "the same; 1 KiB of counts is kept for the second sort"),
    ("mla_up", "mla_up", "", 256, "30 less to begin with (above); rotated keys (2) are gathered, not projected up"),
    ("swap of GMM1's output", "", "grouped_matmul", 128, "the same"),
    ("norm", "norm", "", 60,
     "cumulated, the residual h goes as well: a sum with a norm that is made again; alone it would keep that norm"),
    ("gathered", "gathered", "", 0,
     "the estimate keeps latents of this rank only (above), and has nothing to gather again"),
]  # fmt: skip
"""Choices in the order of the estimate: title, what is recomputed, what is swapped, the estimate's MiB, and why."""

ALONE = [*[(k, k, "") for k in ("act", "norm", "mla_up", "permute", "dispatch", "gathered")], STEPS[4][:3]]


def layer(passes: str) -> Module:
    """The joint graph of the layer after ``passes``."""
    module = load(LAYER)
    PassManager(parse_passes(passes)).run(module, Context(tune=SIZES))
    return module


def chosen(recompute: list[str], swap: list[str]) -> Module:
    """The joint graph with weights placed, and these kinds and saves computed again or parked."""
    more = f",recompute{{what={'+'.join(recompute)}}}" if recompute else ""
    more += f",swap{{what={'+'.join(swap)}}}" if swap else ""
    return layer(FRONT + (more + TIDY if more else ""))


def saves(module: Module) -> dict[str, float]:
    """MiB of each save by name."""
    sizes = balanced_sizes(module, SIZES)
    return {s.name: (s.bytes(sizes) or 0) / MIB for s in saved_values(module)}


def again_us(module: Module) -> float:
    """Microseconds of the nodes that second runs made."""
    prices = TargetPrices(module, load_target("ascend910b1"), SIZES, compiled=True)
    return sum(
        prices.device(n) for n in module.main if "recompute" in n.origin.rewrites and n.op not in ("after", "save")
    )


def row(title: str, mib: float, whole: float, estimate: str = "", time: str = "") -> None:
    """A line of a table."""
    print(f"{title:40} {mib:8.1f} {100 * mib / whole:6.1f} % {mib * IN_FLIGHT / 1024:7.1f} {estimate:>18} {time:>9}")


def head(title: str, estimate: str, times: bool) -> None:
    """The line above a table."""
    print(f"\n{title:40} {'MiB':>8} {'left':>8} {'GiB':>7} {estimate:>18} {'again us' if times else '':>9}")


def items(before: Mapping[str, float]) -> float:
    """Print what is saved without any choice beside the estimate; the estimate's MiB. ValueError: a save is missing."""
    named = [n for _, _, names, _ in ITEMS for n in names]
    if sorted(named) != sorted(before):
        raise ValueError(f"saves changed: {sorted(set(named) ^ set(before))}")
    print(f"{'saved without any choice, MiB':45} {'moec':>8} {'estimate':>9} {'differs':>8}")
    for title, estimate, names, why in ITEMS:
        mib = sum(before[n] for n in names)
        print(f"{title:45} {mib:8.2f} {estimate:9.2f} {mib - estimate:8.2f}{'  ' + why if why else ''}")
    whole = sum(estimate for _, estimate, _, _ in ITEMS)
    print(f"{'all':45} {sum(before.values()):8.2f} {whole:9.2f} {sum(before.values()) - whole:8.2f}")
    return whole


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", action="store_true", help="price what is computed again")
    times = parser.parse_args().times
    before = saves(layer(FRONT.replace("prob-placement,", "")))
    whole = sum(before.values())
    estimated = items(before)

    def timed(module: Module) -> str:
        return f"{again_us(module):.0f}" if times else ""

    head("each choice alone, weights before GMM2", "", times)
    row("nothing placed or chosen", whole, whole)
    placed = chosen([], [])
    row("weights before GMM2", sum(saves(placed).values()), whole)
    for title, recompute, swap in ALONE:
        module = chosen([recompute] if recompute else [], [swap] if swap else [])
        row(title, sum(saves(module).values()), whole, "", timed(module))

    print("permute is what was sorted and not exchanged since: nothing of it is saved here, all of it is dispatch")

    head("one after the other", "estimate", times)
    row("nothing", whole, whole, f"{estimated:8.1f}  100.0 %")
    last, left = whole, estimated
    reasons = []
    for i, (title, _, _, goes, why) in enumerate(STEPS):
        module = chosen([r for _, r, _, _, _ in STEPS[: i + 1] if r], [s for _, _, s, _, _ in STEPS[: i + 1] if s])
        mib = sum(saves(module).values())
        left -= goes
        row(title, mib, whole, f"{left:8.1f}  {100 * left / estimated:5.1f} %", timed(module))
        reasons.append(f"{title:24} {last - mib:7.1f}, by the estimate {goes:5.1f}: {why}")
        last = mib
    print("\nMiB that each takes away")
    print("\n".join(reasons))


if __name__ == "__main__":
    main()
