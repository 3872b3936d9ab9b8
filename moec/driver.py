"""The whole way from a file to kernels and reports. This module alone knows every stage; each stage is imported when
it is reached.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moec import sources, store
from moec.artefacts import SUMMARY, check_output, output_folder
from moec.autodiff import saved_values
from moec.diagnostics import CheckFailed, Diagnosis, NoKernel, Problem, Refusal, Usage, Where, suggest
from moec.eval.ranks import groups
from moec.ir.data import TensorData
from moec.ir.graph import Module
from moec.ir.text import parse_module, print_module
from moec.ops.places import has_host
from moec.passes.base import Context, Pass, PassManager, Result, default_passes, parse_passes, train_passes
from moec.report.summary import lowering_entry, op_counts, pass_entry, saved_entry, summary
from moec.sizes import symbol_bounds
from moec.target import Schedule, Target
from moec.timeline.balance import balanced_sizes
from moec.timeline.idle import HostTime
from moec.timeline.report import host_entry
from moec.witness import Witness

DEFAULT_TARGET = "ascend910b1"
LOWERINGS = ("kernels", "aclnn", "auto")
"""What may run an op: moec's kernels, the vendor's operators, or the faster of the two."""

load = sources.load

Stage = Callable[[str], AbstractContextManager[None]]
"""Called with a stage's name; the block runs that stage. Shows progress."""


@dataclass(frozen=True)
class Compiled:
    """What ``compile`` made: the module after all passes, the target's program and schedule (None where an op has no
    kernel), the summary.
    """

    module: Module
    program: Any
    schedule: Schedule | None
    summary: dict[str, Any]


@dataclass
class _Run:
    """The state of one compilation."""

    module: Module
    folder: Path | None
    final: Path
    texts: list[tuple[str, str]] = field(default_factory=list)
    tensors: dict[str, TensorData] = field(default_factory=dict)

    def keep(self, name: str) -> None:
        """Record the IR as it is now under ``name``."""
        if self.folder is not None:
            self.texts.append((f"{len(self.texts):02d}_{name}.mir", print_module(self.module, origins=True)))
            for key, data in store.tensors_of([self.module]).items():
                self.tensors.setdefault(key, data)


def compile(
    source: str | Path | Module,
    out: str | Path | None = None,
    *,
    target: str | Target = DEFAULT_TARGET,
    set: Mapping[str, int] | None = None,
    passes: str | Sequence[Pass] | None = None,
    train: str | None = None,
    memory: str = "",
    balance: str = "",
    lower: str = "kernels",
    check: bool = False,
    print_after: Sequence[str] = (),
    print: Callable[[str], None] = print,
    stage: Stage = lambda name: nullcontext(),
) -> Compiled:
    """Compile a layer: run passes, lower to kernels of ``target``, time them; write everything to folder ``out`` where
    that is given.

    ``source`` is a file or a module, which is changed in place. ``set`` gives the sizes of symbols that tiles and
    schedule are chosen for. ``passes`` replaces the default ones. ``train``, the options of the autodiff pass as text
    ("" for none), makes the joint graph of forward and backward; ``recompute`` and ``swap`` are what of its saves the
    passes of those names take, ``balance`` the options of balance-loss. ``lower``: whether ops run as ``kernels`` of
    moec's, as operators of the vendor's library (``aclnn``) where it has them, or as what the estimate says is faster
    (``auto``). ``check`` evaluates the layer before and after each pass. ``print_after`` names passes (or ``all``)
    after which ``print`` gets the IR. Raises Refusal for input that cannot be taken and CheckFailed where a
    check fails; then nothing is written.
    """
    from moec.hosttime import time_of, time_of_schedule
    from moec.passes.plan_memory_drops import choose_drops

    if lower not in LOWERINGS:
        raise Usage(f"--lower {lower}", todo=f"one of {', '.join(LOWERINGS)}")
    chosen = _chosen(passes, train, memory, balance)
    _require_passes(print_after, chosen)
    machine = load_target(target) if isinstance(target, str) else target
    final = Path(out) if out is not None else None
    if final is not None:
        check_output(final)
    path: Path | None = None
    if isinstance(source, Module):
        loaded = sources.Loaded(source, {}, ())
    else:
        path = Path(source)
        with stage(f"reading {path.name}"):
            loaded = sources.read(path)
    module = loaded.module
    _require_known(module)
    given = loaded.given(set or {})
    sizes = loaded.sizes(given)
    place = output_folder(final) if final is not None else nullcontext(None)
    with place as folder:
        run = _Run(module, folder, final or Path())
        context = Context(machine, sizes)
        with stage("timing host and device as written"):
            written = module if train is None else _differentiated(module, chosen, context)
            as_written = time_of(written, context) if written is not None else None
        drops = None
        if passes is None and memory:
            with stage("planning with and without dropping"):
                chosen, drops = choose_drops(module, chosen, context)
        made = _passes(run, chosen, context, path if check else None, check, print_after, print, stage)
        if drops is not None and made.memory is not None:
            made.memory = drops.told(made.memory)
        program, schedule, reasons = _lower(machine, module, sizes, lower, folder, stage)
        with stage("timing host and device"):
            apart = made.memory is not None and made.memory["in_flight"] > 1
            timed = time_of(module, context, apart) or (
                time_of_schedule(schedule, machine) if schedule is not None else None
            )
        saved = saved_values(module)
        source_entry = {"file": path.name, "kind": path.suffix.removeprefix(".")} if path is not None else {}
        document = summary(
            source_entry,
            [*map(str, loaded.warnings), *_doubts(program)],
            {"name": machine.name, "title": machine.title},
            sizes,
            dict.fromkeys(loaded.tune, "file") | dict.fromkeys(given, "set"),
            symbol_bounds(module),
            made.entries,
            made.before,
            op_counts(module),
            schedule,
            reasons,
            made.witness.checks if made.witness is not None else (),
            saved_entry(saved, balanced_sizes(module, sizes) if saved else {}),
            host_entry(timed, as_written) if timed is not None else None,
            made.memory,
            lowering_entry(lower, program.choices) if lower != "kernels" and program is not None else None,
        )
        if folder is not None:
            with stage("writing reports"):
                _write(run, folder, document, schedule, timed, made)
    return Compiled(module, program, schedule, document)


def _chosen(passes: str | Sequence[Pass] | None, train: str | None, memory: str, balance: str) -> list[Pass]:
    """The passes to run; Usage where a training graph is wanted of passes that make none."""
    if passes is None:
        return default_passes() if train is None else train_passes(train, memory, balance)
    chosen = parse_passes(passes) if isinstance(passes, str) else list(passes)
    if train is not None and all(p.name != "autodiff" for p in chosen):
        raise Usage("--train with --passes that do not differentiate", todo="put autodiff among the passes")
    if train:
        raise Usage("options of --train with --passes", todo=f"give them to the pass: autodiff{{{train}}}")
    return chosen


def load_target(name: str) -> Target:
    """The target of that name; Refusal with a suggestion for an unknown one."""
    from moec.targets.ascend import load_target as load_ascend

    return load_ascend(name)


def host_times(file: Path, set: Mapping[str, int], target: str, passes: str, capacity_factor: float) -> dict[str, Any]:
    """Host and device of a layer on one timeline, before and after ``passes``; see ``moec.hosttime.times``. Each host
    call that prices are made of comes with its source.
    """
    from moec.hosttime import times
    from moec.targets.ascend.opmodel.host import host_calls

    found = times(file, set, load_target(target), passes, capacity_factor)
    for call in found["calls"]:
        call["source"] = host_calls()[call["call"]].source
    return found


def paired_times(file: Path, set: Mapping[str, int], target: str, ranks_per_node: int) -> list[dict[str, Any]]:
    """Forward of one micro-batch beside backward of another; see ``moec.pairedtime.paired_times``."""
    from moec.pairedtime import paired_times

    return paired_times(file, set, load_target(target), ranks_per_node)


def memory_plan(
    file: Path, set: Mapping[str, int], target: str, memory: str, stage: Stage = lambda name: nullcontext()
) -> dict[str, Any]:
    """What a plan makes of a layer's training, without kernels; see ``moec.memoryplan.planned``."""
    from moec.memoryplan import planned

    return planned(file, set, load_target(target), memory, stage)


def _differentiated(module: Module, chosen: Sequence[Pass], context: Context) -> Module | None:
    """The training graph of a layer as it was written: differentiated, and nothing else. None where that is not
    possible, or where it neither waits for the host nor exchanges anything.
    """
    from moec.passes.reorder_launch import has_collectives
    from moec.passes.sync_removal_choices import copy_module

    if not (has_host(module) or has_collectives(module)):
        return None
    made = copy_module(module)
    plain = [p for p in chosen if p.name in ("balance-loss", "autodiff")]
    try:
        PassManager(plain).run(made, Context(context.target, context.tune))
    except Diagnosis:
        return None
    return made


def _require_passes(names: Sequence[str], chosen: Sequence[Pass]) -> None:
    known = [p.name for p in chosen]
    for name in names:
        if name != "all" and name not in known:
            hint = suggest(name, known) or f"passes that run: {', '.join(known)}; or all"
            raise Usage(f"--print-after: no pass '{name}' runs", todo=hint)


def _require_known(module: Module) -> None:
    """Refusal with every operator that neither moec nor ONNX itself knows: nothing can be said of what it computes."""
    import onnx

    found: dict[str, list[str]] = {}
    for node in module.nodes():
        if node.op == "opaque" and not onnx.defs.has(node.attrs["type"], node.attrs["domain"]):
            name = ".".join(filter(None, (node.attrs["domain"], node.attrs["type"])))
            found.setdefault(name, []).append(str(node.origin))
    if found:
        todo = "write it with standard operators before it is exported"
        raise Refusal(
            [
                Problem(
                    f"unknown operator {name} ({len(places)} nodes, this is the first)", Where(node=places[0]), todo
                )
                for name, places in found.items()
            ]
        )


@dataclass
class _Passed:
    entries: list[dict[str, Any]]
    before: dict[str, int]
    witness: Witness | None
    imported: Module | None
    """A copy of the module as imported, for the report."""
    memory: dict[str, Any] | None = None
    """What a pass that plans memory planned."""


def _passes(
    run: _Run,
    chosen: Sequence[Pass],
    context: Context,
    path: Path | None,
    check: bool,
    print_after: Sequence[str],
    show: Callable[[str], None],
    stage: Stage,
) -> _Passed:
    module = run.module
    run.keep("import")
    made = _Passed([], op_counts(module), None, None)
    if run.folder is not None:
        made.imported = parse_module(run.texts[0][1], store=run.tensors)
    if check:
        with stage("evaluating the import"):
            made.witness = Witness.of(module, path)
        context = Context(context.target, context.tune, made.witness)

    def after(number: int, each: Pass, module: Module, result: Result) -> None:
        if made.witness is not None:
            made.witness.check(module, each.name)
        run.keep(each.name)
        if each.name in print_after or "all" in print_after:
            show(f"# after {each.spec}\n{print_module(module)}")

    steps = PassManager(chosen, after=(after,)).steps(module, context)
    for each in chosen:
        with stage(f"pass {each.name}"):
            try:
                step = next(steps)
            except CheckFailed as failure:
                raise _with_reproducer(failure, run, each, made.witness) from failure
        made.memory = step.result.memory or made.memory
        made.entries.append(pass_entry(step, sum(len(g) for g in module.functions.values())))
    return made


def _with_reproducer(failure: CheckFailed, run: _Run, each: Pass, witness: Witness | None) -> CheckFailed:
    """``failure`` with the command that replays it, where there is an output folder to write that file beside."""
    from moec.repro import SUFFIX, Failure, Snapshot, write

    if run.folder is None or witness is None:
        return failure
    before = Snapshot(run.texts[-1][1], run.tensors)
    path = run.final.with_name(run.final.name + SUFFIX)
    write(Failure(before, each.spec, None, tuple(witness.cases), witness.weights, str(failure)), path)
    again = Problem("what failed is kept in one file", todo=f"replay it with: moec repro {path}")
    return CheckFailed([*failure.problems, again])


def _lower(
    machine: Target, module: Module, sizes: Mapping[str, int], lower: str, folder: Path | None, stage: Stage
) -> tuple[Any, Schedule | None, list[str]]:
    if not set(module.symbols) <= set(sizes):  # sizes that data decides, under a balanced load
        sizes = balanced_sizes(module, sizes)
    try:
        with stage("lowering to kernels"):
            program = machine.lower(module, sizes, lower)
    except NoKernel as refusal:
        return None, None, _grouped(refusal.problems)
    if folder is not None:
        with stage("writing AscendC"):
            machine.emit(program, folder / "ascendc")
    with stage("timing kernels"):
        return program, machine.schedule(program, sizes), []


def _doubts(program: Any) -> list[str]:
    """What the layer asks for and the program does otherwise, where the target's programs tell."""
    sizes = program.read_all_the_same() if hasattr(program, "read_all_the_same") else []
    why = "which the layer leaves to the device: a collective, a step of the host or a call of the library needs them"
    return [f"the host reads {', '.join(sizes)}, {why}"] if sizes else []


def _grouped(problems: Sequence[Problem]) -> list[str]:
    """One text for each different problem: how often, and the first place."""
    places: dict[str, list[str]] = {}
    for p in problems:
        places.setdefault(p.what, []).append(str(p.where))
    return [
        f"{what}: {len(where)} node{'s' if len(where) > 1 else ''}, the first is {where[0]}"
        for what, where in places.items()
    ]


def _write(
    run: _Run, folder: Path, document: dict[str, Any], schedule: Schedule | None, timed: HostTime | None, made: _Passed
) -> None:
    """Write the IR after each pass, the ONNX model and the reports."""
    from moec.frontend.onnx_export import export_onnx
    from moec.report.html import report
    from moec.report.schedule import schedule_json
    from moec.report.trace import trace

    texts = folder / "ir"
    texts.mkdir()
    for name, text in run.texts:
        (texts / name).write_text(text, encoding="utf-8")
    store.save(run.tensors, texts, run.final.absolute() / "ir")
    if groups(run.module):
        document["warnings"].append("optimized.onnx was not written: ONNX knows no groups of ranks")
    else:
        export_onnx(run.module, folder / "optimized.onnx")
    if schedule is not None:
        _json(folder / "schedule.json", schedule_json(schedule))
    if timed is not None:
        _json(folder / "trace.json", trace(schedule, timed))
    assert made.imported is not None
    (folder / "report.html").write_text(report(document, made.imported, run.module, schedule), encoding="utf-8")
    _json(folder / SUMMARY, document)


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
