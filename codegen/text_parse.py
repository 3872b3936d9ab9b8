"""Reads the text form of kernels (moec.codegen.text). Errors name the line."""

from __future__ import annotations

import re
from dataclasses import replace

from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.kernel_ir import (
    Assign,
    Barrier,
    Buffer,
    Comment,
    CrossCoreSet,
    CrossCoreWait,
    For,
    GmRef,
    GmTensor,
    If,
    Instr,
    Kernel,
    Let,
    LoadScalar,
    LocalRef,
    ParamValue,
    Ref,
    ScalarArg,
    SetFlag,
    Stmt,
    StoreScalar,
    SyncAll,
    WaitFlag,
    Witness,
)
from moec.codegen.scalar import Arg, Bin, Choose, Core, Scalar, Var
from moec.codegen.text import CORE_NAMES, LEVEL
from moec.diagnostics import Refusal, Where

_TOKEN = re.compile(
    r'\s*("[^"]*"|\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|\d+|[A-Za-z_][\w.]*|//|<=|>=|==|!=|[-+*/%<>=(){}\[\],;:@])'
)
_CORES = {name: which for which, name in CORE_NAMES.items()}
_WORDS = ("or", "and")


class _Line:
    """A cursor over the tokens of one line."""

    def __init__(self, reader: _Reader, text: str):
        self.reader = reader
        self.tokens: list[str] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            m = _TOKEN.match(text, at)
            if m is None:
                raise reader.error(f"cannot read {text[at:]!r}")
            self.tokens.append(m[1])
            at = m.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def take(self, token: str) -> None:
        got = self.next()
        if got != token:
            raise self.reader.error(f"expected {token!r}, found {got!r}")

    def skip(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def expr(self, level: int = 1) -> Scalar:
        left = self.primary()
        while (op := self.peek()) in LEVEL and LEVEL[op] >= level:
            self.next()
            left = Bin(op, left, self.expr(LEVEL[op] + 1))
        return left

    def primary(self) -> Scalar:
        token = self.next()
        if token == "(":
            inner = self.expr()
            self.take(")")
            return inner
        if token == "-":
            number = self.primary()
            assert isinstance(number, (int, float))
            return -number
        if token[:1].isdigit():
            return float(token) if "." in token or "e" in token else int(token)
        if token in ("inf", "nan"):
            return float(token)
        if token in _CORES:
            return Core(_CORES[token])
        if token in ("min", "max", "cdiv", "choose") and self.peek() == "(":
            return self.call(token)
        if token in self.reader.args:
            return Arg(token)
        if token in self.reader.vars:
            return Var(token, self.reader.vars[token])
        raise self.reader.error(f"unknown name {token!r}")

    def call(self, name: str) -> Scalar:
        self.take("(")
        parts = [self.expr()]
        while self.skip(","):
            parts.append(self.expr())
        self.take(")")
        return Choose(*parts) if name == "choose" else Bin(name, *parts)

    def ref(self) -> Ref:
        if self.skip("@"):
            name = self.next()
            if name not in self.reader.gm:
                raise self.reader.error(f"unknown tensor {name!r}")
            gm = GmRef(name, 0, self.reader.gm[name])
            return replace(gm, offset=self.bracket("[", "]"), dtype=self.dtype(gm.dtype))
        name = self.next()
        if name not in self.reader.local:
            raise self.reader.error(f"unknown buffer {name!r}")
        slot, offset = self.bracket("{", "}"), self.bracket("[", "]")
        return LocalRef(name, slot, offset, self.dtype(self.reader.local[name]))

    def bracket(self, opening: str, closing: str) -> Scalar:
        if not self.skip(opening):
            return 0
        inner = self.expr()
        self.take(closing)
        return inner

    def dtype(self, default: str) -> str:
        return self.next() if self.skip(":") else default

    def param(self) -> ParamValue:
        if self.peek().startswith('"'):
            return self.next()[1:-1]
        if self.peek() in ("true", "false"):
            return self.next() == "true"
        return self.expr()

    def var(self) -> Var:
        name = self.next()
        self.take(":")
        dtype = self.next()
        self.take("=")
        self.reader.vars[name] = dtype
        return Var(name, dtype)


class _Reader:
    def __init__(self, text: str, file: str):
        self.lines = [line for line in text.splitlines() if line.strip()]
        self.file, self.at = file, 0
        self.args: dict[str, ScalarArg] = {}
        self.gm: dict[str, str] = {}
        self.local: dict[str, str] = {}
        self.vars: dict[str, str] = {}

    def error(self, what: str) -> Refusal:
        return Refusal(what, Where(file=self.file, line=self.at, text=self.lines[self.at - 1].strip()))

    def line(self) -> str:
        if self.at >= len(self.lines):
            raise self.error("text ends too early")
        self.at += 1
        return self.lines[self.at - 1].strip()

    def kernel(self) -> Kernel:
        head = self.line()
        m = re.fullmatch(r"kernel (\w+) core=(\w+) blocks=(.*)", head)
        if m is None:
            raise self.error("expected 'kernel NAME core=KIND blocks=EXPR'")
        params, buffers, witnesses, source = [], [], [], []
        while (text := self.line()) != "body":
            word, _, rest = text.partition(" ")
            if word == "source":
                source.append(rest)
            elif word == "arg":
                name, lo, hi = re.split(r" |\.\.", rest)
                self.args[name] = ScalarArg(name, int(lo), int(hi))
            elif word == "gm":
                params.append(self.tensor(rest))
            elif word == "buffer":
                buffers.append(self.buffer(rest))
            elif word == "witness":
                witnesses.append(self.witness(rest))
            else:
                raise self.error(f"unknown line {word!r}")
        body = self.block(closing=False)
        return Kernel(
            m[1],
            m[2],
            tuple(params),
            tuple(self.args.values()),
            tuple(buffers),
            body,
            _Line(self, m[3]).expr(),
            tuple(witnesses),
            tuple(source),
        )

    def tensor(self, rest: str) -> GmTensor:
        m = re.fullmatch(r"(\w+) (\w+) \[(.*)\] (\w+) (\w+)", rest)
        if m is None:
            raise self.error("expected 'gm NAME DTYPE [SHAPE] DIRECTION ROLE'")
        shape: list[Scalar] = []
        line = _Line(self, m[3])
        while line.peek():
            shape.append(line.expr())
            line.skip(",")
        self.gm[m[1]] = m[2]
        return GmTensor(m[1], m[2], tuple(shape), m[4], m[5])

    def buffer(self, rest: str) -> Buffer:
        m = re.fullmatch(r"(\w+) (\w+) (\w+) at (\d+) of (\d+) slots (\d+)", rest)
        if m is None:
            raise self.error("expected 'buffer NAME SPACE DTYPE at OFFSET of ELEMENTS slots N'")
        self.local[m[1]] = m[3]
        return Buffer(m[1], m[2], m[3], int(m[4]), int(m[5]), int(m[6]))

    def witness(self, rest: str) -> Witness:
        cores, args, data = 1, [], []
        for word in rest.split():
            name, _, text = word.partition("=")
            if text.startswith("["):
                data.append((name, tuple(int(x) for x in text[1:-1].split(",") if x)))
            elif name == "cores":
                cores = int(text)
            else:
                args.append((name, int(text)))
        return Witness(tuple(args), cores, tuple(data))

    def block(self, closing: bool = True) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        while closing or self.at < len(self.lines):
            text = self.line()
            if text in ("}", "} else {"):
                self.at -= text != "}"
                break
            out.append(self.statement(text))
        return tuple(out)

    def statement(self, text: str) -> Stmt:
        if text.startswith("#"):
            return Comment(text[2:])
        if text == "syncall":
            return SyncAll()
        word, _, rest = text.partition(" ")
        line = _Line(self, rest if word in _STATEMENTS else text)
        if word in _STATEMENTS:
            return _STATEMENTS[word](self, line)
        return self.instruction(line)

    def for_(self, line: _Line) -> Stmt:
        var = line.next()
        line.take("=")
        start = line.expr()
        line.take("to")
        stop = line.expr()
        line.take("step")
        step = line.expr()
        line.take("{")
        self.vars[var] = "i64"
        return For(var, start, stop, step, self.block())

    def if_(self, line: _Line) -> Stmt:
        cond = line.expr()
        line.take("{")
        then = self.block()
        orelse: tuple[Stmt, ...] = ()
        if self.at < len(self.lines) and self.lines[self.at].strip() == "} else {":
            self.at += 1
            orelse = self.block()
        return If(cond, then, orelse)

    def let(self, line: _Line) -> Stmt:
        return Let(line.var(), line.expr())

    def assign(self, line: _Line) -> Stmt:
        name = line.next()
        line.take("=")
        if name not in self.vars:
            raise self.error(f"unknown variable {name!r}")
        return Assign(Var(name, self.vars[name]), line.expr())

    def load(self, line: _Line) -> Stmt:
        return LoadScalar(line.var(), line.ref())

    def store(self, line: _Line) -> Stmt:
        ref = line.ref()
        line.take("=")
        return StoreScalar(ref, line.expr())

    def set_(self, line: _Line) -> Stmt:
        return SetFlag(line.next(), line.next(), line.expr())

    def wait(self, line: _Line) -> Stmt:
        return WaitFlag(line.next(), line.next(), line.expr())

    def barrier(self, line: _Line) -> Stmt:
        return Barrier(line.next())

    def cross_set(self, line: _Line) -> Stmt:
        return CrossCoreSet(int(line.next()), line.next(), line.expr())

    def cross_wait(self, line: _Line) -> Stmt:
        return CrossCoreWait(line.expr())

    def instruction(self, line: _Line) -> Stmt:
        op = line.next()
        if op not in INSTRUCTIONS:
            raise self.error(f"unknown instruction {op!r}")
        spec = INSTRUCTIONS[op]
        line.take("(")
        operands: list[Ref] = []
        for i, o in enumerate(spec.operands):
            if i:
                line.take(",")
            line.take(o.name)
            line.take("=")
            operands.append(line.ref())
        params: list[tuple[str, ParamValue]] = []
        while line.skip(";") or line.skip(","):
            name = line.next()
            line.take("=")
            params.append((name, line.param()))
        line.take(")")
        return Instr(op, tuple(operands), tuple(params))


_STATEMENTS = {
    "for": _Reader.for_,
    "if": _Reader.if_,
    "let": _Reader.let,
    "assign": _Reader.assign,
    "load": _Reader.load,
    "store": _Reader.store,
    "set": _Reader.set_,
    "wait": _Reader.wait,
    "barrier": _Reader.barrier,
    "crossset": _Reader.cross_set,
    "crosswait": _Reader.cross_wait,
}


def parse_kernel(text: str, file: str = "") -> Kernel:
    """The kernel that ``text`` describes; Refusal with the line where it cannot be read."""
    return _Reader(text, file).kernel()
