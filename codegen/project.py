"""Writes a program as a project: kernel sources, host program, CMakeLists, README, manifest, sites and weights."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from moec.codegen.blocks import Block, blocks
from moec.codegen.cpp import HELPERS, CppPrinter
from moec.codegen.dims import scalar_of
from moec.codegen.emit import Source, emit_kernel
from moec.codegen.host_cpp import (
    bind_lines,
    collective_lines,
    event_lines,
    host_lines,
    length_line,
    stream_name,
    variable,
)
from moec.codegen.kernel_ir import Kernel
from moec.codegen.lengths import read_by
from moec.codegen.lower.base import identifier
from moec.codegen.operator_call import OperatorCall
from moec.codegen.operator_cpp import call_lines
from moec.codegen.program import Copy, Launch, Memset, Program, Step, Tensor
from moec.codegen.steps import Bind, Collective, HostOp, Record, Wait
from moec.ir.group import Group
from moec.ir.stream import write_elements
from moec.ir.symbol import Dim, bounds, substitute, sym

ALIGN_WEIGHT = 64
"""Byte alignment of each weight in weights.bin."""


def environment(templates: Path) -> jinja2.Environment:
    """The templates of a target, strict about missing names."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # C++ and Markdown, not HTML
    )


def write_project(program: Program, folder: Path, templates: Path, soc: str) -> None:
    """Writes the project into ``folder`` (made if missing, its kernels folder replaced)."""
    env = environment(templates)
    sources = [emit_kernel(k, env) for k in program.kernels]
    kernels = folder / "kernels"
    if kernels.exists():
        shutil.rmtree(kernels)
    kernels.mkdir(parents=True)
    (folder / "host").mkdir(exist_ok=True)
    for s in sources:
        (kernels / f"{s.name}.cpp").write_text(s.text)
    helpers = [HELPERS[name] for name in sorted(HELPERS)]
    (kernels / "scalar_math.h").write_text(env.get_template("scalar_math.h.j2").render(helpers=helpers))
    offsets = _weight_offsets(program)
    parts = _parts(program, offsets, soc)
    for template, path in (
        ("main.cpp.j2", "host/main.cpp"),
        ("CMakeLists.txt.j2", "CMakeLists.txt"),
        ("README.md.j2", "README.md"),
    ):
        (folder / path).write_text(env.get_template(template).render(parts))
    for header in ("arena.h", *(["library.h"] if parts["calls"] else []), *(["ranks.h"] if program.groups else [])):
        shutil.copyfile(templates / header, folder / "host" / header)
    _json(folder / "manifest.json", manifest(program, offsets))
    _json(folder / "sites.json", sites(sources))
    _write_weights(program, offsets, folder / "weights.bin")


def _json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


def sites(sources: Sequence[Source]) -> dict[str, dict[str, object]]:
    """``<kernel>:<n>`` -> kind, file, line and text of each site."""
    return {
        f"{s.name}:{i}": {"kind": site.kind, "file": f"kernels/{s.name}.cpp", "line": site.line, "text": site.text}
        for s in sources
        for i, site in enumerate(s.sites)
    }


def _weight_offsets(program: Program) -> dict[str, int]:
    offsets, top = {}, 0
    for t in program.of_kind("weight"):
        if t.data is not None:
            offsets[t.name] = top
            top = -(-(top + t.data.nbytes) // ALIGN_WEIGHT) * ALIGN_WEIGHT
    return offsets


def _write_weights(program: Program, offsets: Mapping[str, int], path: Path) -> None:
    if not offsets:
        path.unlink(missing_ok=True)
        return
    with path.open("wb") as file:
        for t in program.of_kind("weight"):
            if t.data is not None:
                file.seek(offsets[t.name])
                write_elements(file, t.data)
        file.truncate(file.tell())


def manifest(program: Program, offsets: Mapping[str, int]) -> dict[str, object]:
    """What goes in and out: dtypes, shapes as text, symbols with bounds, weights with their place in weights.bin.

    An output with ``room`` has a buffer for the most there may be, of which the first elements are the output.
    """

    def entry(prefix: str, name: str, t: Tensor, shape: Sequence[Dim]) -> dict[str, object]:
        return {"name": name, "file": file_name(prefix, name), "dtype": t.dtype, "shape": [str(d) for d in shape]}

    return {
        "name": program.name,
        "symbols": {s: list(b) for s, b in sorted(program.symbols.items()) if s not in program.decided()},
        "bound": sorted(program.decided()),
        "groups": [{"name": g.name, "size": str(g.size), "stride": str(g.stride)} for g in program.groups],
        "shards": [{"name": name, "group": group, "axis": axis} for name, group, axis in program.shards],
        "inputs": [entry("in", t.source, t, t.shape) for t in program.of_kind("input")],
        "weights": [
            entry("in", t.source, t, t.shape) | {"offset": offsets.get(t.name)} for t in program.of_kind("weight")
        ],
        "outputs": [
            entry("out", o.name, program.tensor(o.tensor), o.shape)
            | ({"room": True} if read_by(o.shape, {x.symbol: x for x in program.lengths}) else {})
            for o in program.outputs
        ],
        "launches": [
            {"kernel": s.kernel, "nodes": list(s.nodes), "args": {n: str(d) for n, d in s.args}}
            for s in program.launches()
        ],
    }


class _Host:
    """Prints dimensions as C++ of the host program, where symbols and arguments are variables."""

    def __init__(self, symbols: Mapping[str, str]):
        self.symbols = symbols
        self.printer = CppPrinter(Kernel("host", "aiv", (), (), (), ()))

    def dim(self, d: Dim) -> str:
        renamed = substitute(d, {s: sym(c) for s, c in self.symbols.items()})
        return self.printer.scalar(scalar_of(renamed))

    @property
    def helpers(self) -> set[str]:
        return self.printer.helpers


def _parts(program: Program, offsets: Mapping[str, int], soc: str) -> dict[str, object]:
    """What the host, CMake and README templates are filled with."""
    cpp = {s: f"size_{identifier(s)}" for s in sorted(program.symbols)}
    host = _Host(cpp)
    dying = {
        i: [{"name": f"dev_{name}", "stream": stream_name(stream)} for name, stream in gone]
        for i, gone in program.deaths().items()
    }
    moments = blocks(program)
    behind = {b.step: n for n, b in enumerate(moments)}
    steps = [
        _step(program, s, host, cpp) | {"dying": dying.get(i, []), "block": behind.get(i)}
        for i, s in enumerate(program.steps)
    ]
    binds = program.binds()
    return {
        "program": program,
        "soc": soc,
        "kernels": [{"name": k.name} for k in program.kernels],
        "launches": len(program.launches()),
        "calls": _calls(program),
        "call_headers": sorted({s.header for s in program.steps if isinstance(s, OperatorCall)}),
        "symbols": [
            {"name": s, "cpp": c, "lo": program.symbols[s][0], "hi": program.symbols[s][1]}
            for s, c in cpp.items()
            if s not in program.decided()
        ],
        "bound": [{"name": s, "cpp": cpp[s]} for s in (*binds, *(x.symbol for x in program.lengths))],
        "lengths": [length_line(x, program, cpp[x.symbol], host.dim) for x in program.lengths],
        "groups": [_group(g, host) for g in program.groups],
        "exchanges": [
            {"op": s.op, "group": s.group, "stream": s.stream, "nodes": "; ".join(s.nodes).replace("|", "/")}
            for s in program.steps
            if isinstance(s, Collective)
        ],
        "streams": [stream_name(s) for s in program.streams()],
        "events": sorted({s.event for s in program.steps if isinstance(s, Record)}, key=lambda e: (len(e), e)),
        "weights": bool(offsets),
        "blocks": [_block(n, b, host, offsets) for n, b in enumerate(moments)],
        "host_memory": any(t.kind == "host" for t in program.tensors),
        "steps": steps,
        "outputs": [{"file": file_name("out", o.name), "tensor": f"dev_{o.tensor}"} for o in program.outputs],
        "uses_min": "MinI" in host.helpers,
        "uses_max": "MaxI" in host.helpers,
        "files": _files(program, offsets),
        "table": [
            {"index": i, "kernel": s.kernel, "nodes": "; ".join(s.nodes).replace("|", "/")}
            for i, s in enumerate(program.launches())
        ],
    }


def _calls(program: Program) -> list[dict[str, str]]:
    """The library calls in order, for people."""
    found = [s for s in program.steps if isinstance(s, OperatorCall)]
    return [{"function": s.function, "since": s.since, "nodes": "; ".join(s.nodes).replace("|", "/")} for s in found]


def file_name(prefix: str, name: str) -> str:
    """The file of a named input or output; what file systems dislike in the name becomes ``_``."""
    return f"{prefix}.{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.bin"


def _group(g: Group, host: _Host) -> dict[str, str]:
    """A group's sizes as C++ and as text."""
    return {
        "name": g.name,
        "size": host.dim(g.size),
        "stride": host.dim(g.stride),
        "size_text": str(g.size),
        "stride_text": str(g.stride),
    }


def _block(n: int, block: Block, host: _Host, offsets: Mapping[str, int]) -> dict[str, object]:
    """A block of memory and what is made with it; the first has no number in its name."""
    places = {name: i for i, (name, _, _) in enumerate(block.temporaries)}
    bytes_ = {t.name: host.dim(t.bytes) for t in block.tensors}
    return {
        "number": str(n or ""),
        "tensors": [_tensor(t, host, offsets) | {"life": places.get(t.name)} for t in block.tensors],
        "temporaries": [
            {"name": name, "bytes": bytes_[name], "first": first, "last": last}
            for name, first, last in block.temporaries
        ],
    }


def _tensor(t: Tensor, host: _Host, offsets: Mapping[str, int]) -> dict[str, object]:
    held = t.name in offsets
    outside = t.kind in ("input", "weight")
    file = "weights" if held else f'folder + "/{file_name("in", t.source)}"' if outside else ""
    return {
        "name": variable(t),
        "bytes": host.dim(t.bytes),
        "rank": t.source if t.kind == "rank" else "",
        "file": file,
        "offset": offsets.get(t.name, 0),
        "whole": "false" if held else "true",
        "host": t.kind == "host",
    }


def _step(program: Program, step: Step, host: _Host, cpp: Mapping[str, str]) -> dict[str, object]:
    nodes: Sequence[str] = getattr(step, "nodes", ())
    about: dict[str, object] = {"comment": "; ".join(nodes).replace("\n", " ")}
    if isinstance(step, Record | Wait):
        return {"kind": "event", "lines": event_lines(step)}
    if isinstance(step, Collective):
        return about | {"kind": "lines", "lines": collective_lines(step, program, host.dim)}
    if isinstance(step, HostOp):
        return about | {"kind": "lines", "lines": host_lines(step, program, host.dim)}
    if isinstance(step, Bind):
        return about | {"kind": "bind", "lines": bind_lines(step, program, cpp[step.symbol], host.dim)}
    if isinstance(step, OperatorCall):
        return about | {"kind": "lines", "lines": call_lines(step, host.dim)}
    on = stream_name(step.stream)
    if isinstance(step, Memset):
        return {"kind": "memset", "target": f"dev_{step.tensor}", "comment": f"zero {step.tensor}", "stream": on}
    if isinstance(step, Copy):
        source, target = program.tensor(step.source), program.tensor(step.target)
        ends = ("HOST" if t.kind == "host" else "DEVICE" for t in (source, target))
        return about | {
            "kind": "copy",
            "stream": on,
            "target": variable(target),
            "source": variable(source),
            "direction": "ACL_MEMCPY_" + "_TO_".join(ends),
        }
    kernel = program.kernel(step.kernel)
    given = dict(step.args)
    return about | {
        "kind": "launch",
        "stream": on,
        "kernel": step.kernel,
        "args": [{"name": a.name, "value": host.dim(given[a.name])} for a in kernel.args],
        "words": ", ".join(a.name for a in kernel.args),
        "blocks": host.printer.scalar(kernel.blocks),
        "cores": program.cores["aiv" if kernel.core == "aiv" else "aic"],
        "operands": ", ".join(f"dev_{t}" for _, t in step.operands),
        "unless_empty": _unless_empty(program, step, host),
    }


def _unless_empty(program: Program, launch: Launch, host: _Host) -> str:
    """The condition under which a kernel has something to do; none where there always is."""
    if launch.when != 1:
        return f"{host.dim(launch.when)} > 0"
    written = [t for who, t, writes in program.accesses(launch) if writes]
    least = [bounds(program.tensor(t).elements, program.symbols)[0] for t in written]
    return "" if any(n > 0 for n in least) else " || ".join(f"dev_{t}_bytes > 0" for t in written)


def _files(program: Program, offsets: Mapping[str, int]) -> list[dict[str, str]]:
    def row(file: str, dtype: str, shape: Sequence[Dim]) -> dict[str, str]:
        return {"file": file, "dtype": dtype, "shape": "[" + ", ".join(map(str, shape)) + "]"}

    rows = [row(file_name("in", t.source), t.dtype, t.shape) for t in program.of_kind("input")]
    rows += [
        row(file_name("in", t.source), t.dtype, t.shape) for t in program.of_kind("weight") if t.name not in offsets
    ]
    rows += [row(file_name("out", o.name), program.tensor(o.tensor).dtype, o.shape) for o in program.outputs]
    return rows
