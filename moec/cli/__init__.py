"""The command line. Each command stands in a file of its own; ``main`` turns refusals into messages and exit codes.

Exit codes: 0 done, 1 the input was refused, 2 wrong usage, 3 a check failed.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

import moec
from moec.cli import bind, check, compile, estimate, evaluate, explain, fmt, host, lists, opt, plan, rewrites, run
from moec.diagnostics import Diagnosis

app = typer.Typer(
    name="moec",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
compile.add_to(app)
evaluate.add_to(app)
run.add_to(app)
check.add_to(app)
fmt.add_to(app)
host.add_to(app)
opt.add_to(app)
estimate.add_to(app)
lists.add_to(app)
explain.add_to(app)
rewrites.add_to(app)
bind.add_to(app)
plan.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"moec {moec.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error. Works anywhere.")] = False,
) -> None:
    """Compile mixture-of-experts layers for Ascend NPUs.

    A layer comes from a .moe file, from ONNX or from a Hugging Face config.json; moec rewrites it, writes AscendC
    kernels, and says in cycles how a modelled NPU runs them.

    [bold]Start here[/bold]

      moec compile examples/mixtral_block.moe -o build/mixtral     the whole way
      moec eval model.onnx --inputs in.npz --expect out.npz        the layer's numbers, by numpy
      moec run build/mixtral --inputs in.npz                       the emitted kernels, on a CPU

    Exit codes: 0 done, 1 the input was refused, 2 wrong usage, 3 a check failed.
    """


def main() -> None:
    """Run the command that ``sys.argv`` names and exit."""
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(arguments, prog_name="moec")
    except Diagnosis as problem:
        _report(problem, debug)
        sys.exit(problem.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        _internal(error, debug)
        sys.exit(1)


def _report(problem: Diagnosis, debug: bool) -> None:
    if debug:
        traceback.print_exception(problem)
    count = len(problem.problems)
    print(f"moec: {count} problems" if count > 1 else "moec: error", file=sys.stderr)
    for each in problem.problems:
        print(each, file=sys.stderr)


def _internal(error: Exception, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(last.filename).name}:{last.lineno}"
    print(f"moec: internal error at {place}: {type(error).__name__}: {error}", file=sys.stderr)
    if not debug:
        print("  -> run the command again with --debug and report the traceback", file=sys.stderr)
