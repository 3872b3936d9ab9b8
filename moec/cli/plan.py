"""``moec memory``: what of a layer's activations stays on the card in training, without compiling it."""

from __future__ import annotations

from typing import Annotated

import typer

from moec.cli import memory
from moec.cli.common import Input, Json, Sizes, print_json, stage


def plan(
    file: Input,
    settings: Sizes = None,
    target: Annotated[str, typer.Option("--target", help="The machine: `moec targets` lists them.")] = "ascend910b1",
    budget: Annotated[
        str, typer.Option("--budget", metavar="SIZE", help="What the card's peak stays within.")
    ] = "64GiB",
    pcie: memory.Pcie = "25GB/s",
    host_memory: memory.HostMemory = "192GiB",
    in_flight: memory.InFlight = 1,
    layers: memory.Layers = 1,
    shards: memory.Shards = 1,
    exchanges: memory.Exchanges = False,
    pipeline: memory.Pipelined = None,
    at_stage: memory.Stage = 0,
    as_json: Json = False,
) -> None:
    """Plan what of a layer's activations is kept, computed again, parked on the host or dropped by a rewrite.

    The budget counts weights, gradients, optimizer state, the buffers of communicators, activations of all forwards in
    flight, what backward makes and reads, and what kernels need besides. Each saved tensor is told with its fate and
    the reason, and other budgets with what they would cost. Times are of the modelled machine. [bold]moec compile
    --train --budget[/bold] makes the same plan and compiles the layer with it.

    [bold]Examples[/bold]

      moec memory examples/pangu_ultra_moe_rank.moe --pipeline 16,2,2 --stage 0 --optimizer-shards 48
      moec memory layer.moe --budget 32GiB --pcie 0GB/s                    computing again only
      moec memory layer.moe --budget 32GiB --recompute-exchanges           dispatch may be sent again
    """
    from moec import driver
    from moec.cli.tables import print_memory
    from moec.sizes import parse_sizes

    options = memory.Memory(
        None, None, budget, pcie, host_memory, in_flight, layers, shards, exchanges, pipeline, at_stage
    )
    found = driver.memory_plan(file, parse_sizes(settings or ()), target, options.plan(budget), stage)
    if as_json:
        print_json(found)
    else:
        print_memory(found)


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("memory")(plan)
