"""Text form of programs: ``parse_program(print_program(p)) == p`` (the contents of weights stay outside).

program main aic=24 aiv=48
symbol T 1..64
tensor x f32 [T, 64] input "x"
output "y" = h [T, 8]
launch matmul_f32(a=x, b=w, c=h) {M = T} ["matmul (layer.moe:3)"]
memset counts
copy parked = x ["swap_out (layer.moe:3)"]
library aclnnSwiGlu(x = h:f32[T, 16]; dim = int64_t -1; out = y:f32[T, 8]) -> out "aclnnop/aclnn_swi_glu.h" 8.0 ["swiglu"]
kernel matmul_f32 ...
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from moec.codegen.library import LibraryCall
from moec.codegen.library_text import parse_call, print_call
from moec.codegen.program import Copy, Launch, Memset, Output, Program, Step, Tensor
from moec.codegen.text import print_kernel
from moec.codegen.text_parse import parse_kernel
from moec.diagnostics import Refusal, Where
from moec.ir.symbol import Dim, parse_dim


def _shape(dims: tuple[Dim, ...]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"


def print_program(p: Program) -> str:
    """The whole program, its kernels included."""
    out = [f"program {p.name} aic={p.cores['aic']} aiv={p.cores['aiv']}"]
    out += [f"symbol {s} {lo}..{hi}" for s, (lo, hi) in p.symbols.items()]
    out += [f"tensor {t.name} {t.dtype} {_shape(t.shape)} {t.kind} {json.dumps(t.source)}" for t in p.tensors]
    out += [f"output {json.dumps(o.name)} = {o.tensor} {_shape(o.shape)}" for o in p.outputs]
    for s in p.steps:
        if isinstance(s, Memset):
            out.append(f"memset {s.tensor}")
            continue
        if isinstance(s, Copy):
            out.append(f"copy {s.target} = {s.source} {json.dumps(list(s.nodes))}")
            continue
        if isinstance(s, LibraryCall):
            out.append(f"library {print_call(s)}")
            continue
        operands = ", ".join(f"{name}={tensor}" for name, tensor in s.operands)
        args = "; ".join(f"{name} = {dim}" for name, dim in s.args)
        out.append(f"launch {s.kernel}({operands}) {{{args}}} {json.dumps(list(s.nodes))}")
    return "\n".join(out) + "\n" + "".join(print_kernel(k) for k in p.kernels)


def _dims(text: str) -> tuple[Dim, ...]:
    """Dimensions separated by commas outside parentheses."""
    return tuple(parse_dim(part) for part in _split(text, ","))


def _split(text: str, separator: str) -> Iterator[str]:
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == separator and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


def _pairs(text: str, separator: str) -> Iterator[tuple[str, str]]:
    for part in _split(text, separator):
        name, _, value = part.partition("=")
        yield name.strip(), value.strip()


_LINES = {
    "program": re.compile(r"(\S+) aic=(\d+) aiv=(\d+)"),
    "symbol": re.compile(r"(\S+) (-?\d+)\.\.(-?\d+)"),
    "tensor": re.compile(r"(\w+) (\w+) \[(.*)\] (input|weight|temp|host) (\".*\")"),
    "output": re.compile(r"(\".*\") = (\w+) \[(.*)\]"),
    "launch": re.compile(r"(\w+)\((.*?)\) \{(.*)\} (\[.*\])"),
    "memset": re.compile(r"(\w+)"),
    "copy": re.compile(r"(\w+) = (\w+) (\[.*\])"),
    "library": re.compile(r"(.*)"),
}


def _library(text: str, where: Where) -> LibraryCall:
    try:
        return parse_call(text)
    except ValueError as error:
        raise Refusal(f"cannot read a line of a program: {error}", where) from None


def parse_program(text: str, file: str = "") -> Program:
    """The program that ``text`` describes; Refusal with the line where it cannot be read."""
    head, *kernels = re.split(r"^(?=kernel )", text, flags=re.M)
    name, cores = "", {"aic": 0, "aiv": 0}
    symbols: dict[str, tuple[int, int]] = {}
    tensors: list[Tensor] = []
    outputs: list[Output] = []
    steps: list[Step] = []
    for number, line in enumerate(head.splitlines(), 1):
        word, _, rest = line.partition(" ")
        m = _LINES[word].fullmatch(rest) if word in _LINES else None
        if m is None:
            raise Refusal(f"cannot read a line of a program: {word!r}", Where(file=file, line=number, text=line))
        if word == "program":
            name, cores = m[1], {"aic": int(m[2]), "aiv": int(m[3])}
        elif word == "symbol":
            symbols[m[1]] = (int(m[2]), int(m[3]))
        elif word == "tensor":
            tensors.append(Tensor(m[1], m[2], _dims(m[3]), m[4], json.loads(m[5])))
        elif word == "output":
            outputs.append(Output(json.loads(m[1]), m[2], _dims(m[3])))
        elif word == "memset":
            steps.append(Memset(m[1]))
        elif word == "copy":
            steps.append(Copy(m[1], m[2], tuple(json.loads(m[3]))))
        elif word == "library":
            steps.append(_library(m[1], Where(file=file, line=number, text=line)))
        else:
            args = tuple((n, parse_dim(d)) for n, d in _pairs(m[3], ";"))
            steps.append(Launch(m[1], tuple(_pairs(m[2], ",")), args, tuple(json.loads(m[4]))))
    made = tuple(parse_kernel(k, file) for k in kernels)
    return Program(name, symbols, made, tuple(tensors), tuple(outputs), tuple(steps), cores)
