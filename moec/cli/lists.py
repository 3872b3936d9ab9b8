"""``moec passes``, ``moec ops``, ``moec instructions``, ``moec targets``: what there is, as tables or JSON."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import typer

from moec.cli.common import Json, print_json, print_table

if TYPE_CHECKING:
    from moec.codegen.instructions.spec import InstrSpec


def passes(as_json: Json = False) -> None:
    """List the passes with their options."""
    from moec.passes.base import DEFAULT_PIPELINE, known_passes

    default = DEFAULT_PIPELINE.split(",")
    rows: list[dict[str, Any]] = [
        {
            "pass": name,
            "default": name in default,
            "options": [{"name": n, "type": t, "default": d} for n, t, d in cls.options()],
            "summary": cls.summary(),
        }
        for name, cls in known_passes().items()
    ]
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            r["pass"],
            "yes" if r["default"] else "",
            ", ".join(f"{o['name']}={o['default']}" for o in r["options"]),
            r["summary"],
        )
        for r in rows
    ]
    print_table(("pass", "default", "options", "what it does"), cells)


def ops(as_json: Json = False) -> None:
    """List the ops of the layer IR with their signatures."""
    import moec.ops  # noqa: F401  (declares the ops)
    from moec.ops.registry import OPS
    from moec.ops.signature import signature_text
    from moec.ops.tape import refusal

    rows = [
        {
            "op": name,
            "signature": signature_text(d.signature),
            "cost": d.cost,
            "onnx": d.onnx,
            "gradient": d.grad is not None and not refusal(d.grad),
            "no_gradient": d.nondiff or refusal(d.grad),
            "summary": d.doc.split("\n")[0],
        }
        for name, d in sorted(OPS.items())
    ]
    if as_json:
        print_json(rows)
        return
    print_table(("signature", "cost", "what it is"), [(r["signature"], r["cost"], r["summary"]) for r in rows])


def instructions(as_json: Json = False) -> None:
    """List the AscendC calls that kernels are made of: pipe, data types on 910B, the call as it is written.

    Static checks, the emitter and the cycle model read the same table, and nothing outside it is ever emitted but
    flags, barriers and buffers.
    """
    from moec.codegen.instructions import INSTRUCTIONS

    rows: list[dict[str, Any]] = [
        {
            "instruction": name,
            "pipe": s.pipe if isinstance(s.pipe, str) else dict(s.pipe),
            "dtypes": {o.name: list(o.dtypes) for o in s.operands},
            "call": _spelled(s),
            "fields": {p.name: p.kind for p in s.params},
            "doc": s.doc,
        }
        for name, s in INSTRUCTIONS.items()
    ]
    if as_json:
        print_json(rows)
        return
    cells = []
    for r in rows:
        pipe = r["pipe"] if isinstance(r["pipe"], str) else ", ".join(f"{path}: {p}" for path, p in r["pipe"].items())
        kinds = dict.fromkeys(" ".join(d) or "any" for d in r["dtypes"].values())
        cells.append((r["instruction"], pipe, "; ".join(kinds), r["call"], r["doc"]))
    print_table(("instruction", "pipe", "data types", "call", "what it is"), cells)


def _spelled(spec: InstrSpec) -> str:
    """The call with the names of its operands and parameters; ``T`` stands for an operand's type."""
    names = {name: name for name in (*(o.name for o in spec.operands), *(p.name for p in spec.params))}
    return spec.call.format(**names, T=SimpleNamespace(**{o.name: "T" for o in spec.operands}))


def targets(as_json: Json = False) -> None:
    """List the machines that moec compiles for."""
    from moec.targets.ascend.machine import load, machines

    rows: list[dict[str, Any]] = []
    for name in machines():
        m = load(name)
        cores = {kind: m.cores(kind) for kind in ("aic", "aiv")}
        figures = {"clock_mhz": m["clock_mhz"], "hbm_bytes": m["memory.hbm_bytes"], "hbm_rate": m["memory.hbm_rate"]}
        rows.append({"target": name, "title": m.title, "cores": cores} | figures)
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            r["target"],
            r["title"],
            r["cores"]["aic"],
            r["cores"]["aiv"],
            f"{r['clock_mhz']:g}",
            f"{r['hbm_bytes'] / 2**30:g}",
            f"{r['hbm_rate'] / 1e12:.2f}",
        )
        for r in rows
    ]
    print_table(("target", "what it is", "cube cores", "vector cores", "MHz", "HBM GiB", "HBM TB/s"), cells)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("passes")(passes)
    app.command("ops")(ops)
    app.command("instructions")(instructions)
    app.command("targets")(targets)
