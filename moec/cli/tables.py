"""The table that ``moec compile`` ends with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from moec.cli.common import print_table, warn

SHOWN_MISSES = 3
"""Near misses of a pass that are printed; summary.json and the report have them all."""

MIB = 1 << 20
SHOWN_IDLE = 3
"""Intervals in which the device idles that are printed, the longest first; summary.json and the report have more."""

SHOWN_SAVES = 5
"""Saved activations that are printed; summary.json has them all."""


def print_summary(summary: Mapping[str, Any], out: Path | None) -> None:
    """Passes, kernels and totals of a compilation, and where the files are (None: nowhere)."""
    warn(summary["warnings"])
    for entry in summary["passes"]:
        if entry["applied"] or entry["near_misses"]:
            done = ", ".join(f"{rule} x{n}" if n > 1 else rule for rule, n in entry["applied"].items()) or "nothing"
            missed = len(entry["near_misses"])
            typer.echo(
                f"{entry['pass']}: {done}" + (f" ({missed} near miss{'es' if missed > 1 else ''})" if missed else "")
            )
        for miss in entry["near_misses"][:SHOWN_MISSES]:
            typer.echo(f"  near miss of {miss['rule']}: {miss['reason']}")
        for name, error in entry.get("errors", {}).items():
            typer.echo(f"  error of '{name}': {float(error['max_abs']):.2e}, relative {float(error['max_rel']):.2e}")
    before, after = (sum(summary["ops"][k].values()) for k in ("before", "after"))
    typer.echo(f"nodes: {before} -> {after}")
    if summary["saved"]:
        _print_saved(summary["saved"])
    if summary["memory"] is not None:
        print_memory(summary["memory"])
    if summary["checks"]:
        worst = max(
            (o["max_rel"] for c in summary["checks"] for o in c["outputs"] if o["max_rel"] != "inf"), default=0.0
        )
        typer.echo(f"checks: {len(summary['checks'])} agree, largest relative error {worst:.2e}")
    if summary["host"] is not None:
        _print_host(summary["host"])
    if summary["lowering"] is not None:
        _print_lowering(summary["lowering"])
    if summary["lowered"]:
        _print_kernels(summary)
    else:
        print("moec: no kernels were written, because some ops have none:", file=sys.stderr)
        for reason in summary["not_lowered"]:
            print(reason, file=sys.stderr)
    typer.echo(f"written: {out}/ (open report.html)" if out is not None else "nothing written: -o DIR writes it")


def _print_lowering(lowering: Mapping[str, Any]) -> None:
    """Which nodes became library calls, and why the others did not."""
    rows = []
    for c in lowering["choices"]:
        times = ("" if us is None else f"{us:,.2f}" for us in (c["library_us"], c["kernel_us"]))
        rows.append((c["node"].split(" (")[0], " + ".join(c["calls"]) or "kernel", c["since"], *times, c["reason"]))
    print_table(("op", "runs as", "CANN from", "library us", "kernel us", "why"), rows)


def _print_saved(saved: Mapping[str, Any]) -> None:
    size = "bytes that data decides" if saved["bytes"] is None else f"{saved['bytes']:,} bytes"
    largest = sorted(saved["values"], key=lambda v: -(v["bytes"] or 0))[:SHOWN_SAVES]
    typer.echo(
        f"saved activations: {saved['count']}, {size}; the largest: "
        + ", ".join(f"{v['name']} {v['type']}" for v in largest)
    )


def print_memory(memory: Mapping[str, Any]) -> None:
    """The plan: what it comes to, each tensor's fate, and what other budgets would cost."""
    from moec.report.html import binary

    typer.echo(
        f"memory: peak {binary(memory['peak_bytes'])} of {binary(memory['budget_bytes'])} (unplanned "
        f"{binary(memory['unplanned_peak_bytes'])}), {memory['saved_percent']:.1f} % of the activations "
        f"gone for {memory['added_time_percent']:.2f} % of time (bound gap {memory['bound_gap_percent']:.2f} %), "
        f"{binary(memory['host_bytes'])} on the host"
    )
    parts = ", ".join(f"{name} {binary(n)}" for name, n in memory["parts"].items())
    most = memory["workspace"]
    typer.echo(f"  at the peak ({memory['peak_at']}): {parts}")
    if most["bytes"]:
        typer.echo(f"  most workspace: {binary(most['bytes'])} for {most['step']} at {most['at']}")
    if "drops" in memory:
        _print_drops(memory["drops"])
    rows = [
        (t["tensor"], t["kind"], binary(t["bytes"]), t["fate"], t["why"])
        for t in memory["tensors"]
        if t["bytes"] >= MIB
    ]
    print_table(("activation", "kind", "size", "fate", "why"), rows, f"one of {memory['in_flight']} in flight")
    sweep = [
        (
            binary(s["budget_bytes"]),
            binary(s["peak_bytes"]),
            f"{s['saved_percent']:.1f}",
            f"{s['added_time_percent']:.2f}",
        )
        for s in memory["sweep"]
    ]
    print_table(("budget", "peak", "% gone", "% time"), sweep)


def _print_drops(drops: Mapping[str, Any]) -> None:
    """What dropping by a rewrite comes to, chosen or not."""
    from moec.report.html import binary

    names = ", ".join(f"{t['tensor']} ({binary(t['bytes'])})" for t in drops["tensors"])
    said = [
        f"{name} {d['period_us']:.0f} us a period" if "period_us" in d else f"{name}: {d['reason']}"
        for name, d in ((n, drops[n]) for n in ("kept", "dropped"))
    ]
    typer.echo(f"  {'dropped' if drops['chosen'] else 'not dropped'}: {names}; planned, {', '.join(said)}")


def _print_host(host: Mapping[str, Any]) -> None:
    """Reads and free time, of layers that read or exchange also as written."""
    sides = [(name, host[name]) for name in ("before", "after") if host[name] is not None]
    if len(sides) < 2 and not (host["after"]["reads"] or host["after"]["exposed_us"]):
        return
    for name, s in sides:
        typer.echo(
            f"host, {name}: {s['blocking_reads']} blocking reads, gap {s['gap_us']:.1f} us,"
            f" free time {s['free_time_percent']:.2f} % of {s['us']:.1f} us ("
            + ", ".join(f"{kind} {us:.1f} us" for kind, us in s["idle_us"].items())
            + ")"
        )
    for i in host["after"]["idle"][:SHOWN_IDLE]:
        typer.echo(f"  still idle {i['us']:.1f} us, {i['type']}: {i['op']} at {i['at']}")


def _print_kernels(summary: Mapping[str, Any]) -> None:
    rows = [
        (k["kernel"], k["core"], k["blocks"], f"{k['cycles']:,}", *_times(k), k["bound"]) for k in summary["kernels"]
    ]
    total = summary["total"]
    rows.append(("total", "", "", f"{total['cycles']:,}", *_times(total), ""))
    sizes = ", ".join(
        f"{n}={s['size']}" + (" (assumed)" if s["from"] == "assumed" else "") for n, s in summary["symbols"].items()
    )
    title = f"{summary['target']['title']}" + (f" at {sizes}" if sizes else "")
    print_table(("kernel", "core", "blocks", "cycles", "us", "from", "to", "floor us", "bound by"), rows, title)


def _times(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Time, band and floor of a kernel or of all."""
    return tuple(f"{entry[key]:.2f}" for key in ("us", "low_us", "high_us", "floor_us"))
