"""``moec host``: host and device of a layer on one timeline, its reads, and what takes them out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from moec.cli.common import Input, Json, Sizes, print_json, print_table, stage
from moec.diagnostics import Usage

SHOWN_OPS = 4
"""Ops that are named of those which make a schedule longer, the most first."""


def host(
    file: Input,
    settings: Sizes = None,
    target: Annotated[str, typer.Option("--target", help="The machine: `moec targets` lists them.")] = "ascend910b1",
    passes: Annotated[
        str, typer.Option("--passes", metavar="A,B{opt=v},...", help="What is done to the layer.")
    ] = "sync-removal,reorder-launch",
    capacity: Annotated[
        float, typer.Option("--capacity-factor", help="Room of the capacity dispatcher, in averages.")
    ] = 2.0,
    paired: Annotated[
        bool, typer.Option("--paired", help="Pair forward of a micro-batch with backward of another.")
    ] = False,
    ranks_per_node: Annotated[int, typer.Option("--ranks-per-node", help="Of exchanges in two tiers.")] = 8,
    as_json: Json = False,
) -> None:
    """Say where the device waits for the host: reads and free time before and after passes, and each way out priced.

    The layer is timed in a row of its like, under a balanced load. A read blocks where the host waits in it at all.

    [bold]Examples[/bold]

      moec host examples/megatron_dispatcher.moe
      moec host layer.moe --paired                                         exposed exchanges, flat and in two tiers
      moec host examples/megatron_dispatcher_pangu.moe --passes "sync-removal{counts=all-gather},reorder-launch"
    """
    from moec import driver
    from moec.sizes import parse_sizes

    if not 0 <= capacity < float("inf"):
        todo = "give a number that is not below 0, e.g. 2"
        raise Usage(f"--capacity-factor: {capacity} is no number of averages", todo=todo)
    if ranks_per_node < 1:
        raise Usage(f"--ranks-per-node: {ranks_per_node} ranks are no node", todo="give at least 1")
    if paired:
        with stage(f"pairing {file.name}"):
            forms = driver.paired_times(file, parse_sizes(settings or ()), target, ranks_per_node)
        if as_json:
            print_json(forms)
        else:
            _paired(forms)
        return
    with stage(f"timing {file.name}"):
        found = driver.host_times(file, parse_sizes(settings or ()), target, passes, capacity)
    if as_json:
        print_json(found)
        return
    _reads(found)
    _sides(found)
    _choices(found)
    print_table(
        ("host call", "us", "source"), [(c["call"], c["us"], c["source"]) for c in found["calls"]], "host costs"
    )


def _reads(found: dict[str, Any]) -> None:
    heads = ("read at", "host waits us", "device idles us")
    before, after = (found[side]["reads"] for side in ("before", "after"))
    print_table((*heads, "because of"), [(*_read(r), "\n".join(r["uses"])) for r in before], "reads as written")
    typer.echo("taken out: " + (", ".join(f"{rule} x{n}" for rule, n in found["applied"].items()) or "nothing"))
    if after:
        print_table(heads, [_read(r) for r in after], "reads left")
    elif before:
        typer.echo("reads left: none")


def _read(read: dict[str, Any]) -> tuple[str, str, str]:
    return read["at"], f"{read['waited_us']:.1f}", f"{read['idle_us']:.1f}"


def _sides(found: dict[str, Any]) -> None:
    rows = []
    for name in ("before", "after"):
        s = found[name]
        idle = s["idle_us"]
        rows.append(
            (name, f"{s['us']:.1f}", s["blocking_reads"], f"{sum(r['waited_us'] for r in s['reads']):.1f}")
            + (f"{s['gap_us']:.1f}", f"{idle['sync']:.1f}", f"{idle['dispatch']:.1f}", f"{idle['dependency']:.1f}")
            + (f"{s['free_time_percent']:.2f}", f"{s['exposed_us']:.1f}")
        )
    heads = ("", "us", "blocking", "host waits us", "gap us", "sync", "dispatch", "dependency", "free %", "exposed us")
    print_table(heads, rows, f"{found['target']}")
    gone = found["before"]["gap_us"] - found["after"]["gap_us"]
    if found["before"]["gap_us"]:
        typer.echo(f"host-bound gap gone: {100 * gone / found['before']['gap_us']:.1f} %")
    for i in found["after"]["idle"][:5]:
        typer.echo(f"  still idle {i['us']:.1f} us, {i['type']}: {i['op']} at {i['at']}")


def _paired(forms: list[dict[str, Any]]) -> None:
    rows = [
        (
            f["form"],
            f"{f['forward_us']:.1f}",
            f"{f['backward_us']:.1f}",
            f"{f['apart_us']:.1f}",
            f"{f['paired_us']:.1f}",
        )
        + (f"{f['exchange_us']:.1f}", f"{f['exposed_apart_us']:.1f}", f"{f['exposed_apart_percent']:.2f}")
        + (f"{f['exposed_us']:.1f}", f"{f['exposed_percent']:.2f}", f"{f['free_time_percent']:.2f}")
        for f in forms
        if "reason" not in f
    ]
    heads = ("exchange", "forward us", "backward us", "apart us", "paired us", "exchanges us", "exposed apart us", "%")
    print_table((*heads, "exposed paired us", "% of step", "free %"), rows, "a layer forward and one backward")
    flat = forms[0]
    for f in forms:
        for e in f.get("exposed", ()):
            held = "; ".join(
                f"{h['side']} goes on with {h['kernel']}, which needs {h['waits_for'] or 'no exchange'}"
                if h["kernel"]
                else f"{h['side']} has none left in this step"
                for h in e["held"]
            )
            typer.echo(
                f"{f['form']}: {e['exchange']} ({e['side']}, {e['at']}) takes {e['whole_us']:.0f} us, {e['us']:.0f} of "
                f"them beside no kernel: {held}"
            )
        if "reason" in f:
            typer.echo(f"{f['form']}: {f['reason']}")
        elif f["paired_us"] > flat["paired_us"]:
            more = {op: us - flat["kernels"].get(op, 0.0) for op, us in f["kernels"].items()}
            most = ", ".join(f"{op} {us:+.0f} us" for op, us in sorted(more.items(), key=lambda m: -m[1])[:SHOWN_OPS])
            typer.echo(
                f"{f['form']}: a paired step is {f['paired_us'] - flat['paired_us']:.0f} us longer than flat, although "
                f"its exchanges take {flat['exchange_us'] - f['exchange_us']:.0f} us less: those are hidden either way,"
                f" and its kernels take {f['kernels_us'] - flat['kernels_us']:.0f} us more ({most})"
            )


def _choices(found: dict[str, Any]) -> None:
    if not found["choices"]:
        return
    rows = [
        (c["counts"], f"{c['us']:.1f}", c["blocking_reads"], f"{c['idle_us']:.1f}", f"{c['exposed_us']:.1f}")
        + (f"{c['sent_mib']:.1f}", c["room"], c["exactness"])
        if "us" in c
        else (c["counts"], "", "", "", "", "", "", f"not possible: {c['reason']}")
        for c in found["choices"]
    ]
    heads = ("counts", "us", "blocking", "idle for reads us", "exposed us", "operands MiB", "row room", "exactness")
    print_table(heads, rows, "lists of all_to_all_v: what each way costs")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("host")(host)
