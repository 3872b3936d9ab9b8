"""Text form of kernels: ``parse_kernel(print_kernel(k)) == k``, one statement a line.

    kernel scale core=aiv blocks=cdiv(n, 4096)
    arg n 0..2147483647
    gm x f32 [n] in activation
    buffer buf UB f32 at 0 of 4096 slots 2
    body
      let ping: i64 = 0
      for t = core to cdiv(n, 4096) step cores {
        DataCopyPadIn(dst=buf{ping}, src=@x[t * 4096]; blockCount=1, ...)
        set MTE2 V ping
      }

References: ``@x[offset]`` is device memory, ``buf{slot}[offset]:dtype`` on-chip memory; slot 0, offset 0 and the
dtype of
the declaration are left out. ``core``, ``cores`` and ``subcore`` are the core's index, their number and the sub-index.
"""

from __future__ import annotations

from collections.abc import Iterator

from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.kernel_ir import (
    Assign,
    Barrier,
    Comment,
    CrossCoreSet,
    CrossCoreWait,
    For,
    GmRef,
    If,
    Instr,
    Kernel,
    Let,
    LoadScalar,
    ParamValue,
    Ref,
    SetFlag,
    Stmt,
    StoreScalar,
    SyncAll,
    WaitFlag,
)
from moec.codegen.scalar import Arg, Bin, Choose, Core, Scalar, Var

CORE_NAMES = {"idx": "core", "num": "cores", "sub": "subcore", "aic": "aic", "aiv": "aiv"}
LEVEL = {"or": 1, "and": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "+": 4, "-": 4}
LEVEL |= {"*": 5, "//": 5, "/": 5, "%": 5}


def scalar_text(s: Scalar, level: int = 0) -> str:
    """``s`` with the fewest parentheses that keep its tree."""
    if isinstance(s, (Var, Arg)):
        return s.name
    if isinstance(s, Core):
        return CORE_NAMES[s.which]
    if isinstance(s, Choose):
        return f"choose({scalar_text(s.cond)}, {scalar_text(s.a)}, {scalar_text(s.b)})"
    if isinstance(s, Bin):
        if s.op not in LEVEL:
            return f"{s.op}({scalar_text(s.a)}, {scalar_text(s.b)})"
        mine = LEVEL[s.op]
        text = f"{scalar_text(s.a, mine)} {s.op} {scalar_text(s.b, mine + 1)}"
        return f"({text})" if mine < level else text
    return repr(s)


class _Printer:
    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.gm = {p.name: p.dtype for p in kernel.params}
        self.local = {b.name: b.dtype for b in kernel.buffers}

    def ref(self, r: Ref) -> str:
        if isinstance(r, GmRef):
            text, declared = f"@{r.tensor}", self.gm[r.tensor]
        else:
            text, declared = r.buffer, self.local[r.buffer]
            if not (isinstance(r.slot, int) and r.slot == 0):
                text += f"{{{scalar_text(r.slot)}}}"
        if not (isinstance(r.offset, int) and r.offset == 0):
            text += f"[{scalar_text(r.offset)}]"
        return text if r.dtype == declared else f"{text}:{r.dtype}"

    @staticmethod
    def param(p: ParamValue) -> str:
        if isinstance(p, bool):
            return "true" if p else "false"
        return f'"{p}"' if isinstance(p, str) else scalar_text(p)

    def lines(self, block: tuple[Stmt, ...], indent: str) -> Iterator[str]:
        for s in block:
            if isinstance(s, For):
                start, stop, step = (scalar_text(x) for x in (s.start, s.stop, s.step))
                yield f"{indent}for {s.var} = {start} to {stop} step {step} {{"
                yield from self.lines(s.body, indent + "  ")
                yield f"{indent}}}"
            elif isinstance(s, If):
                yield f"{indent}if {scalar_text(s.cond)} {{"
                yield from self.lines(s.then, indent + "  ")
                if s.orelse:
                    yield f"{indent}}} else {{"
                    yield from self.lines(s.orelse, indent + "  ")
                yield f"{indent}}}"
            else:
                yield indent + self.simple(s)

    def simple(self, s: Stmt) -> str:
        if isinstance(s, Let):
            return f"let {s.var.name}: {s.var.dtype} = {scalar_text(s.value)}"
        if isinstance(s, Assign):
            return f"assign {s.var.name} = {scalar_text(s.value)}"
        if isinstance(s, LoadScalar):
            return f"load {s.var.name}: {s.var.dtype} = {self.ref(s.ref)}"
        if isinstance(s, StoreScalar):
            return f"store {self.ref(s.ref)} = {scalar_text(s.value)}"
        if isinstance(s, SetFlag):
            return f"set {s.src} {s.dst} {scalar_text(s.id)}"
        if isinstance(s, WaitFlag):
            return f"wait {s.src} {s.dst} {scalar_text(s.id)}"
        if isinstance(s, Barrier):
            return f"barrier {s.pipe}"
        if isinstance(s, SyncAll):
            return "syncall"
        if isinstance(s, CrossCoreSet):
            return f"crossset {s.mode} {s.pipe} {scalar_text(s.id)}"
        if isinstance(s, CrossCoreWait):
            return f"crosswait {scalar_text(s.id)}"
        if isinstance(s, Comment):
            return f"# {s.text}"
        assert isinstance(s, Instr)
        return self.instruction(s)

    def instruction(self, s: Instr) -> str:
        names = [o.name for o in INSTRUCTIONS[s.op].operands]
        operands = ", ".join(f"{n}={self.ref(r)}" for n, r in zip(names, s.operands, strict=True))
        params = ", ".join(f"{n}={self.param(p)}" for n, p in s.params)
        return f"{s.op}({operands}; {params})" if params else f"{s.op}({operands})"


def print_kernel(kernel: Kernel) -> str:
    """The whole kernel as text."""
    p = _Printer(kernel)
    out = [f"kernel {kernel.name} core={kernel.core} blocks={scalar_text(kernel.blocks)}"]
    out += [f"source {s}" for s in kernel.source]
    out += [f"arg {a.name} {a.lo}..{a.hi}" for a in kernel.args]
    for g in kernel.params:
        out.append(f"gm {g.name} {g.dtype} [{', '.join(scalar_text(d) for d in g.shape)}] {g.direction} {g.role}")
    out += [f"buffer {b.name} {b.space} {b.dtype} at {b.offset} of {b.elems} slots {b.slots}" for b in kernel.buffers]
    for w in kernel.witnesses:
        args = "".join(f" {n}={v}" for n, v in w.args)
        data = "".join(f" {n}=[{','.join(map(str, v))}]" for n, v in w.data)
        out.append(f"witness cores={w.cores}{args}{data}")
    out.append("body")
    out += p.lines(kernel.body, "  ")
    return "\n".join(out) + "\n"
