"""One kernel's source file: the printed statements inside the file template of the target.

The template holds the includes, the entry point and the order of the parts. What a kernel does is printed from its IR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jinja2

from moec.codegen.cpp import CppPrinter, Site
from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.kernel_ir import CPP, CrossCoreSet, Instr, Kernel, Stmt, SyncAll, statements


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel's file: its text and the sites in it."""

    name: str
    text: str
    sites: tuple[Site, ...]


def task_type(kernel: Kernel) -> str:
    """KERNEL_TYPE_x: which cores run it, and whether they may synchronise with one another in hardware."""
    together = _has(kernel.body, (SyncAll, CrossCoreSet))
    if kernel.core == "aiv":
        return "MIX_AIV_1_0" if together else "AIV_ONLY"
    if kernel.core == "aic":
        return "MIX_AIC_1_0" if together else "AIC_ONLY"
    return "MIX_AIC_1_2"


def _headers(kernel: Kernel) -> list[str]:
    """Headers that the kernel's instructions need besides kernel_operator.h."""
    return sorted({h for s in statements(kernel.body) if isinstance(s, Instr) and (h := INSTRUCTIONS[s.op].header)})


def _has(block: Sequence[Stmt], kinds: tuple[type, ...]) -> bool:
    return any(isinstance(s, kinds) for s in statements(block))


def emit_kernel(kernel: Kernel, templates: jinja2.Environment) -> Source:
    """The C++ source of ``kernel`` from the template ``kernel.cpp.j2``."""
    p = CppPrinter(kernel)
    for i, a in enumerate(kernel.args):
        p.add(f"const int64_t {a.name} = reinterpret_cast<__gm__ int64_t *>(tiling)[{i}];", "    ")
    for g in kernel.params:
        p.add(f"GlobalTensor<{CPP[g.dtype]}> {g.name};", "    ")
        pointer = f"reinterpret_cast<__gm__ {CPP[g.dtype]} *>({g.name}_gm)"
        p.add(f"{g.name}.SetGlobalBuffer({pointer}, {p.scalar(g.elements)});", "    ", "bound")
    if kernel.buffers:
        p.add("TPipe pipe;", "    ")
    if kernel.core != "mix":
        p.memories(kernel.core, "    ")
    p.block(kernel.body, "    ")
    body_mark = "/*body*/"
    text = templates.get_template("kernel.cpp.j2").render(
        kernel=kernel,
        source=kernel.source,
        scalar_math=bool(p.helpers),
        headers=_headers(kernel),
        task_type=task_type(kernel),
        body=body_mark,
        launch=p_launch(kernel),
    )
    head, tail = text.split(body_mark)
    first = head.count("\n") + 1
    body = "\n".join(p.lines)
    sites = tuple(Site(kind, first + at, p.lines[at].strip()) for kind, at in p.sites)
    return Source(kernel.name, head + body + tail, sites)


def p_launch(kernel: Kernel) -> str:
    """The parameter list of the entry point."""
    return ", ".join([*(f"GM_ADDR {g.name}_gm" for g in kernel.params), "GM_ADDR tiling"])
