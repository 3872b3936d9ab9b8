"""Prints kernel IR statements as AscendC C++, one call a line, and notes which line is which synchronisation site.

Spellings come from the instruction table; this file knows C++ and the names of buffers, nothing of any instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from moec.codegen.instructions import INSTRUCTIONS, InstrSpec, Param
from moec.codegen.kernel_ir import (
    CPP,
    Assign,
    Barrier,
    Buffer,
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
from moec.codegen.scalar import Arg, Bin, Choose, Core, Expr, Scalar, Var, dtype_of, known_factor

POSITION = {"UB": "VECCALC", "L1": "A1", "L0A": "A2", "L0B": "B2", "L0C": "CO1", "BT": "C2", "FB": "C2PIPE2GM"}
CPP_CORE = {"idx": "GetBlockIdx()", "num": "GetBlockNum()", "sub": "GetSubBlockIdx()"}
LEVEL = {"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
CPP_OP = {"//": "/", "and": "&&", "or": "||"}
HELPERS = {
    "MinI": "__aicore__ inline int64_t MinI(int64_t a, int64_t b) { return a < b ? a : b; }",
    "MaxI": "__aicore__ inline int64_t MaxI(int64_t a, int64_t b) { return a > b ? a : b; }",
    "MinF": "__aicore__ inline float MinF(float a, float b) { return a < b ? a : b; }",
    "MaxF": "__aicore__ inline float MaxF(float a, float b) { return a > b ? a : b; }",
    "CeilDivI": "__aicore__ inline int64_t CeilDivI(int64_t a, int64_t b) { return (a + b - 1) / b; }",
}


@dataclass(frozen=True, slots=True)
class Site:
    """A place that can be masked: ``kind`` set wait barrier syncall pad or bound, and the ``line`` of the file
    (1-based)."""

    kind: str
    line: int
    text: str


def is_pad(s: Instr) -> bool:
    """Whether the instruction pads rows, or may store rows that are no whole number of 32-byte blocks."""
    if not INSTRUCTIONS[s.op].pad:
        return False
    params = dict(s.params)
    length = params["blockLen"]
    if "isPad" in params:
        return params["isPad"] is not False
    return not isinstance(length, Scalar) or known_factor(length) % 32 != 0


@dataclass(slots=True)
class CppPrinter:
    """Collects the lines of one kernel body. ``first_line`` is where the first of them will stand in the file."""

    kernel: Kernel
    lines: list[str] = field(default_factory=list)
    sites: list[tuple[str, int]] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)

    def scalar(self, s: Scalar, level: int = 0) -> str:
        if isinstance(s, (Var, Arg)):
            return s.name
        if isinstance(s, Core):
            return CPP_CORE[s.which]
        if isinstance(s, Choose):
            text = f"{self.scalar(s.cond, 1)} ? {self.scalar(s.a, 1)} : {self.scalar(s.b, 1)}"
            return f"({text})" if level else text
        if isinstance(s, Bin):
            return self._binary(s, level)
        assert not isinstance(s, Expr)
        return self.literal(s, "f32" if isinstance(s, float) else "i64")

    def _binary(self, s: Bin, level: int) -> str:
        if s.op in ("min", "max", "cdiv"):
            suffix = "F" if dtype_of(s) == "f32" else "I"
            name = {"min": "Min", "max": "Max", "cdiv": "CeilDiv"}[s.op] + suffix
            self.helpers.add(name)
            return f"{name}({self.scalar(s.a)}, {self.scalar(s.b)})"
        op = CPP_OP.get(s.op, s.op)
        mine = LEVEL[op]
        text = f"{self.scalar(s.a, mine)} {op} {self.scalar(s.b, mine + 1)}"
        return f"({text})" if mine < level or (op in ("&&", "||") and level) else text

    @staticmethod
    def literal(x: float, dtype: str) -> str:
        """A number as a C++ literal of ``dtype``."""
        if isinstance(x, int) and dtype not in ("f32", "f16", "bf16"):
            fits = dtype in ("i32", "i64") and x > -(2**31)  # C++ has no literal of that one
            return str(x) if fits else f"static_cast<{CPP[dtype]}>({x})"
        if x in (float("inf"), float("-inf")):
            text = "__builtin_inff()" if x > 0 else "-__builtin_inff()"
        else:
            text = f"{float(x)!r}f"
        return text if dtype == "f32" else f"static_cast<{CPP[dtype]}>({text})"

    def ref(self, r: Ref) -> str:
        if isinstance(r, GmRef):
            return r.tensor if r.offset == 0 else f"{r.tensor}[{self.scalar(r.offset)}]"
        b = self.kernel.buffer(r.buffer)
        text = r.buffer if b.slots == 1 else f"{r.buffer}[{self.scalar(r.slot)}]"
        if r.dtype != b.dtype:
            text += f".ReinterpretCast<{CPP[r.dtype]}>()"
        return text if r.offset == 0 else f"{text}[{self.scalar(r.offset)}]"

    def param(self, spec: InstrSpec, p: Param, value: ParamValue, dtypes: dict[str, str]) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if p.kind == "enum":
            assert isinstance(value, str)
            return value
        assert not isinstance(value, str)
        if p.kind == "bool":
            return self.scalar(value)
        if p.kind.startswith("elem"):
            _, _, of = p.kind.partition(":")
            dtype = dtypes[of or next(o.name for o in spec.operands if "w" in o.role)]
            if not isinstance(value, Expr):
                return self.literal(value, dtype)
            return f"static_cast<{CPP[dtype]}>({self.scalar(value)})"
        return (
            self.scalar(value) if not isinstance(value, Expr) else f"static_cast<{CPP[p.kind]}>({self.scalar(value)})"
        )

    def call(self, s: Instr) -> str:
        """The AscendC call of an instruction, with its semicolon."""
        spec = INSTRUCTIONS[s.op]
        dtypes = {o.name: r.dtype for o, r in zip(spec.operands, s.operands, strict=True)}
        fields: dict[str, object] = {o.name: self.ref(r) for o, r in zip(spec.operands, s.operands, strict=True)}
        for p, (name, value) in zip(spec.params, s.params, strict=True):
            fields[name] = self.param(spec, p, value, dtypes)
        text = spec.call.format(**fields, T=SimpleNamespace(**{n: CPP[d] for n, d in dtypes.items()}))
        return text if text.endswith("}") and text.startswith("{") else text + ";"

    def add(self, text: str, indent: str, site: str = "") -> None:
        self.lines.append(indent + text)
        if site:
            self.sites.append((site, len(self.lines) - 1))

    def block(self, block: Sequence[Stmt], indent: str) -> None:
        for s in block:
            self._statement(s, indent)

    def _statement(self, s: Stmt, indent: str) -> None:
        inner = indent + "    "
        if isinstance(s, For):
            head = f"int64_t {s.var} = {self.scalar(s.start)}; {s.var} < {self.scalar(s.stop, 5)}; "
            step = f"++{s.var}" if s.step == 1 else f"{s.var} += {self.scalar(s.step)}"
            self.add(f"for ({head}{step}) {{", indent)
            self.block(s.body, inner)
            self.add("}", indent)
        elif isinstance(s, If) and s.cond == Core("aic"):
            self._sides(s, indent)
        elif isinstance(s, If):
            self.add(f"if ({self.scalar(s.cond)}) {{", indent)
            self.block(s.then, inner)
            if s.orelse:
                self.add("} else {", indent)
                self.block(s.orelse, inner)
            self.add("}", indent)
        elif isinstance(s, Let):
            self.add(f"{CPP[s.var.dtype]} {s.var.name} = {self.scalar(s.value)};", indent)
        elif isinstance(s, Assign):
            self.add(f"{s.var.name} = {self.scalar(s.value)};", indent)
        elif isinstance(s, LoadScalar):
            self.add(f"{CPP[s.var.dtype]} {s.var.name} = {self._element(s)};", indent)
        elif isinstance(s, StoreScalar):
            value = f"static_cast<{CPP[s.ref.dtype]}>({self.scalar(s.value)})"
            base, index = self._indexed(s.ref)
            self.add(f"{base}.SetValue({index}, {value});", indent)
        elif isinstance(s, Comment):
            self.add(f"// {s.text}", indent)
        elif isinstance(s, Instr):
            self.add(self.call(s), indent, "pad" if is_pad(s) else "")
        else:
            self._sync(s, indent)

    def _sides(self, s: If, indent: str) -> None:
        """What the cube core and what the vector cores of a mixed kernel do, each with its own memories."""
        for macro, kind, block in (("ASCEND_IS_AIC", "aic", s.then), ("ASCEND_IS_AIV", "aiv", s.orelse)):
            self.add(f"if {macro} {{", indent)
            self.memories(kind, indent + "    ")
            self.block(block, indent + "    ")
            self.add("}", indent)

    def memories(self, kind: str, indent: str) -> None:
        """Declares the on-chip buffers that cores of ``kind`` have."""
        for space in sorted({b.space for b in self.kernel.buffers}):
            if (space == "UB") == (kind == "aiv"):
                self._memory(space, [b for b in self.kernel.buffers if b.space == space], indent)

    def _memory(self, space: str, buffers: Sequence[Buffer], indent: str) -> None:
        memory = space.lower()
        size = max(b.offset + b.bytes for b in buffers)
        self.add(f"TBuf<TPosition::{POSITION[space]}> {memory}Memory;", indent)
        self.add(f"pipe.InitBuffer({memory}Memory, {size});", indent, "bound")
        for b in buffers:
            t = CPP[b.dtype]
            views = [
                f"{memory}Memory.GetWithOffset<{t}>({b.elems}, {b.offset + i * b.slot_bytes})" for i in range(b.slots)
            ]
            if b.slots == 1:
                self.add(f"LocalTensor<{t}> {b.name} = {views[0]};", indent, "bound")
            else:
                self.add(f"LocalTensor<{t}> {b.name}[{b.slots}] = {{", indent)
                for v in views:
                    self.add(v + ",", indent + "    ", "bound")
                self.add("};", indent)

    def _element(self, s: LoadScalar) -> str:
        base, index = self._indexed(s.ref)
        return f"static_cast<{CPP[s.var.dtype]}>({base}.GetValue({index}))"

    def _indexed(self, r: Ref) -> tuple[str, str]:
        return self.ref(replace(r, offset=0)), self.scalar(r.offset)

    def _event(self, id: Scalar) -> str:
        return f"EVENT_ID{id}" if isinstance(id, int) else self.scalar(id)

    def _sync(self, s: Stmt, indent: str) -> None:
        if isinstance(s, SetFlag):
            self.add(f"SetFlag<HardEvent::{s.src}_{s.dst}>({self._event(s.id)});", indent, "set")
        elif isinstance(s, WaitFlag):
            self.add(f"WaitFlag<HardEvent::{s.src}_{s.dst}>({self._event(s.id)});", indent, "wait")
        elif isinstance(s, Barrier):
            self.add(f"PipeBarrier<PIPE_{s.pipe}>();", indent, "barrier")
        elif isinstance(s, SyncAll):
            only = "true" if self.kernel.core == "aiv" else "false"
            self.add(f"SyncAll<{only}>();", indent, "syncall")
        elif isinstance(s, CrossCoreSet):
            self.add(f"CrossCoreSetFlag<{s.mode}, PIPE_{s.pipe}>({self.scalar(s.id)});", indent, "set")
        else:
            assert isinstance(s, CrossCoreWait)
            self.add(f"CrossCoreWaitFlag({self.scalar(s.id)});", indent, "wait")
