"""``moec passes``, ``moec ops``, ``moec instructions``, ``moec targets``: what there is, as tables or JSON."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from moec.cli.common import Json, print_json, print_table


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


def instructions(
    as_json: Json = False,
    review: Annotated[
        bool, typer.Option("--review", help="Compare each call with what CANN's documents say of it for 910B.")
    ] = False,
) -> None:
    """List the AscendC calls that kernels are made of: pipe, data types on 910B, the call as it is written.

    Static checks, the emitter and the cycle model read the same table, and nothing outside it is ever emitted but
    flags, barriers and buffers. With --review: parameter order, data types, limits and alignment as documented, beside
    what moec emits, and a verdict.
    """
    from moec.codegen.instructions import INSTRUCTIONS

    if review:
        _review(as_json)
        return
    rows: list[dict[str, Any]] = [
        {
            "instruction": name,
            "pipe": s.pipe if isinstance(s.pipe, str) else dict(s.pipe),
            "dtypes": {o.name: list(o.dtypes) for o in s.operands},
            "call": s.spelled,
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


def _review(as_json: bool) -> None:
    """The documented calls, and how moec's compare."""
    from moec.targets.ascend.api import documented_text, dtypes_text, review

    rows: list[dict[str, Any]] = [
        {
            "call": r.documented.call,
            "emitted": dtypes_text(r.dtypes),
            "documented": documented_text(r.documented),
            "limits": dict(r.documented.limits),
            "alignment": dict(r.documented.alignment),
            "note": r.documented.note,
            "source": f"CANN asc-devkit docs: {r.documented.source}",
            "verdict": r.verdict,
        }
        for r in review()
    ]
    if as_json:
        print_json(rows)
        return
    cells = []
    for r in rows:
        bounds = [f"{name} <= {most}" for name, most in r["limits"].items()]
        bounds += [f"{where} at {unit} B" for where, unit in r["alignment"].items()]
        about = "; ".join([*bounds, *([r["note"]] if r["note"] else [])])
        cells.append((r["call"], r["emitted"], r["documented"], about, r["source"], r["verdict"]))
    print_table(("documented call", "emitted types", "documented for 910B", "limits", "source", "verdict"), cells)


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
