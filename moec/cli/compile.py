"""``moec compile``: the whole way from a layer to kernels, schedule and reports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from moec.cli import memory
from moec.cli.common import Input, Sizes, stage
from moec.diagnostics import Usage


def compile(
    file: Input,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="DIR",
            help="Folder to write; an earlier output is replaced. Without it, what would be written is only told of.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[str, typer.Option("--target", help="The machine: `moec targets` lists them.")] = "ascend910b1",
    settings: Sizes = None,
    passes: Annotated[
        str | None,
        typer.Option(
            "--passes", metavar="A,B{opt=v},...", help="Passes to run instead of the default ones.", show_default=False
        ),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Make the joint graph of forward and backward; see below.")
    ] = False,
    loss: Annotated[
        str | None,
        typer.Option("--loss", metavar="OUT+...", help="With --train: outputs to differentiate.", show_default=False),
    ] = None,
    wrt: Annotated[
        str | None,
        typer.Option(
            "--wrt",
            metavar="NAME+...",
            help="With --train: inputs and weights to differentiate for.",
            show_default=False,
        ),
    ] = None,
    loss_scale: Annotated[
        float | None,
        typer.Option(
            "--loss-scale",
            metavar="S",
            help="With --train: what the loss is multiplied by; gradients of weights are divided by it at the end "
            "(f16 weights want --weight-grads f32).",
            show_default=False,
        ),
    ] = None,
    weight_grads: Annotated[
        str | None,
        typer.Option(
            "--weight-grads",
            metavar="DTYPE",
            help="With --train: f32 keeps gradients of 16-bit weights in f32.",
            show_default=False,
        ),
    ] = None,
    balance: Annotated[
        str | None,
        typer.Option(
            "--balance",
            metavar="kind=K,coefficient=C",
            help="With --train: a balance loss of every router; kinds: micro_batch, ep_group, dp_group, cv_squared "
            "(`moec passes balance-loss` says more).",
            show_default=False,
        ),
    ] = None,
    recompute: memory.Recompute = None,
    swap: memory.Swap = None,
    budget: memory.Budget = None,
    pcie: memory.Pcie = "25GB/s",
    host_memory: memory.HostMemory = "192GiB",
    in_flight: memory.InFlight = 1,
    layers: memory.Layers = 1,
    shards: memory.Shards = 1,
    exchanges: memory.Exchanges = False,
    pipeline: memory.Pipelined = None,
    at_stage: memory.Stage = 0,
    lower: Annotated[
        str,
        typer.Option(
            "--lower",
            metavar="kernels|aclnn|auto",
            help="What runs an op: moec's kernels, CANN's operator library (aclnn) where it has the op, or what the "
            "estimate says is faster.",
        ),
    ] = "kernels",
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Evaluate the layer after every pass and compare with the import (and with FILE.npz)."
        ),
    ] = False,
    print_after: Annotated[
        list[str] | None,
        typer.Option("--print-after", metavar="PASS|all", help="Print the IR after a pass.", show_default=False),
    ] = None,
) -> None:
    """Compile a layer: rewrite it, write AscendC kernels, and time them on a modelled NPU.

    DIR gets the IR after every pass ([bold]ir/[/bold]), [bold]optimized.onnx[/bold], the kernels with their host
    program ([bold]ascendc/[/bold]),
    [bold]schedule.json[/bold], [bold]trace.json[/bold] (opens in Perfetto), [bold]report.html[/bold] and
    [bold]summary.json[/bold].
    Sizes left open stay run-time arguments of the kernels; --set only says what to tune and time for.

    --train adds outputs d_NAME, the gradients of inputs and weights. The loss is the output that is a scalar, or the
    sum of those that --loss names; of an output that is none (a layer's y) the incoming gradient becomes an input d_y.
    What forward keeps for backward stands in save nodes; the table says how many bytes.

    [bold]Examples[/bold]

      moec compile layer.moe -o build/layer --set T=4096
      moec compile model.onnx -o build/model --target ascend910b3 --check
      moec compile model.onnx -o build/model --print-after recover-moe
      moec compile layer.moe -o build/layer --train --weight-grads f32
      moec compile layer.moe -o build/layer --train --recompute act,norm --swap permute
      moec compile layer.moe -o build/layer --train --budget 64GiB --pipeline 16,2,2 --stage 0
      moec compile examples/pangu_ultra_moe_rank.moe --train --set mbs=2,s=8192 --budget 64GiB
      moec compile layer.moe -o build/layer --train --balance kind=micro_batch,coefficient=0.001
      moec compile layer.moe -o build/layer --lower auto
      moec compile config.json -o build/layers --set batch=1,seq=8192     (the decoder layers of a Hugging Face model)
    """
    from moec import driver
    from moec.cli.tables import print_summary
    from moec.sizes import parse_sizes

    sizes = parse_sizes(settings or ())
    _require_train(train, passes, balance)
    if balance is not None and loss is not None:
        loss += "+balance_loss"
    compiled = driver.compile(
        file,
        out,
        target=target,
        set=sizes,
        passes=passes,
        train=_options(train, {"loss": loss, "wrt": wrt, "loss_scale": loss_scale, "weight_grads": weight_grads}),
        memory=memory.Memory(
            recompute,
            swap,
            budget,
            pcie,
            host_memory,
            in_flight,
            layers,
            shards,
            exchanges,
            pipeline,
            at_stage,
            lower != "kernels",
        ).passes(train, passes is not None),
        balance=balance or "",
        lower=lower,
        check=check,
        print_after=print_after or (),
        print=typer.echo,
        stage=stage,
    )
    print_summary(compiled.summary, out)


def _require_train(train: bool, passes: str | None, balance: str | None) -> None:
    """Usage for a balance loss that needs the training pipeline and does not get it."""
    if balance is not None and (not train or passes is not None):
        todo = "add --train" if not train else "put balance-loss{kind=...} among the passes"
        raise Usage(f"--balance {'without --train' if not train else 'with --passes'}", todo=todo)


def _options(train: bool, given: Mapping[str, object | None]) -> str | None:
    """The options of the autodiff pass; None without ``--train``, which the others want."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen and not train:
        named = ", ".join("--" + name.replace("_", "-") for name in chosen)
        raise Usage(f"{named} without --train", todo="add --train")
    return ",".join(f"{name}={value}" for name, value in chosen.items()) if train else None


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("compile")(compile)
