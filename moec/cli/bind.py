"""``moec bind``: which cores serve which NPU, and a script that launches with it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from moec.cli.common import Json, print_json, print_table


def bind(
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Folder for launch.sh and affinity.json.", show_default=False),
    ] = None,
    npus: Annotated[
        int | None, typer.Option("--npus", metavar="N", min=1, help="NPUs; default: those found.", show_default=False)
    ] = None,
    cores: Annotated[int, typer.Option("--cores", metavar="N", min=2, help="Cores for each NPU.")] = 24,
    reserve: Annotated[
        int, typer.Option("--reserve", metavar="N", min=0, help="Cores of each memory node left to the system.")
    ] = 0,
    topology: Annotated[
        Path | None,
        typer.Option("--topology", metavar="F.json", help="Another machine, described in a file.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bind each NPU's process to cores near it: the thread that launches gets one of its own, the others the rest.

    Nothing is changed on this machine: the plan is printed, and with -o written as a script that starts a program once
    for each NPU.

    [bold]Examples[/bold]

      moec bind -o build/bind
      moec bind --topology atlas800.json --npus 8 --cores 24 -o build/bind
      build/bind/launch.sh python train.py
    """
    from moec.affinity.plan import as_json as plain
    from moec.affinity.plan import bind as plan_of
    from moec.affinity.plan import launch_script
    from moec.affinity.topology import print_cores, read_topology, this_machine
    from moec.diagnostics import Refusal, Where

    machine = read_topology(topology) if topology is not None else this_machine()
    count = npus if npus is not None else len(machine.npus)
    if not count:
        raise Refusal("no NPU is found here", todo="say how many with --npus, or describe the machine with --topology")
    if machine.npus and count > len(machine.npus):
        told = f"{topology} tells of" if topology is not None else "this machine has"
        raise Refusal(f"--npus {count}: {told} {len(machine.npus)}", todo=f"give --npus {len(machine.npus)} or fewer")
    plan = plan_of(machine, count, cores, reserve)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / "affinity.json").write_text(json.dumps(plain(plan), indent=1) + "\n", encoding="utf-8")
            (out / "launch.sh").write_text(launch_script(plan), encoding="utf-8")
            os.chmod(out / "launch.sh", 0o755)
        except OSError as error:
            raise Refusal(f"cannot write the plan: {error.strerror}", Where(str(out)), "give a writable -o") from None
    if as_json:
        print_json(plain(plan))
        return
    known = {True: "yes", False: "NO", None: "not known"}
    rows = [(b.npu, b.node, known[b.near], b.main, print_cores(b.rest)) for b in plan]
    print_table(("NPU", "memory node", "near it", "main thread", "other threads"), rows)
    if out is not None:
        typer.echo(f"written: {out}/launch.sh, {out}/affinity.json")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("bind")(bind)
