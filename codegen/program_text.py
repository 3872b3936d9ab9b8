"""Text form of programs: ``parse_program(print_program(p)) == p`` (the contents of weights stay outside).

program main aic=24 aiv=48
symbol T 1..64
group ep {4; 1}
sharded "w" over ep axis 0
length n = counted {0; 2*T} ["device_size (layer.moe:4)"]
tensor x f32 [T, 64] input "x"
output "y" = h [T, 8]
launch matmul_f32(a=x, b=w, c=h) {M = T} ["matmul (layer.moe:3)"]
memset counts
record e0 on compute
wait e0 on copy
copy parked = x ["swap_out (layer.moe:3)"] on copy
all_gather all = x over ep {8*T} ["all_gather (layer.moe:4)"]
host rows = reduce_sum(counts) {"axes": [0]} ["reduce_sum (layer.moe:5)"]
bind R = rows {0; 64*T} ["bind_size (layer.moe:5)"]
library aclnnSwiGlu(x = h:f32[T, 16]; dim = int64_t -1; out = y:f32[T, 8]) -> out "aclnnop/aclnn_swi_glu.h" 8.0 ["s"]
kernel matmul_f32 ...
"""

from __future__ import annotations

import json
import re

from moec.codegen.lengths import Length
from moec.codegen.program import Output, Program, Step, Tensor
from moec.codegen.steps_text import parse_step, print_step, split
from moec.codegen.text import print_kernel
from moec.codegen.text_parse import parse_kernel
from moec.diagnostics import Refusal, Where
from moec.ir.group import Group
from moec.ir.symbol import Dim, parse_dim


def _shape(dims: tuple[Dim, ...]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"


def print_program(p: Program) -> str:
    """The whole program, its kernels included."""
    out = [f"program {p.name} aic={p.cores['aic']} aiv={p.cores['aiv']}"]
    out += [f"symbol {s} {lo}..{hi}" for s, (lo, hi) in p.symbols.items()]
    out += [f"group {g.name} {{{g.size}; {g.stride}}}" for g in p.groups]
    out += [f"sharded {json.dumps(name)} over {group} axis {axis}" for name, group, axis in p.shards]
    out += [f"tensor {t.name} {t.dtype} {_shape(t.shape)} {t.kind} {json.dumps(t.source)}" for t in p.tensors]
    out += [f"output {json.dumps(o.name)} = {o.tensor} {_shape(o.shape)}" for o in p.outputs]
    out += [f"length {x.symbol} = {x.tensor} {{{x.low}; {x.most}}} {json.dumps(list(x.nodes))}" for x in p.lengths]
    out += [print_step(s) for s in p.steps]
    return "\n".join(out) + "\n" + "".join(print_kernel(k) for k in p.kernels)


def _dims(text: str) -> tuple[Dim, ...]:
    """Dimensions separated by commas outside parentheses."""
    return tuple(parse_dim(part) for part in split(text, ","))


_LINES = {
    "program": re.compile(r"(\S+) aic=(\d+) aiv=(\d+)"),
    "symbol": re.compile(r"(\S+) (-?\d+)\.\.(-?\d+)"),
    "tensor": re.compile(r"(\w+) (\w+) \[(.*)\] (input|weight|temp|host|rank) (\".*\")"),
    "output": re.compile(r"(\".*\") = (\w+) \[(.*)\]"),
    "sharded": re.compile(r"(\".*\") over (\w+) axis (\d+)"),
    "group": re.compile(r"(\w+) \{(.*); (.*)\}"),
    "length": re.compile(r"(\S+) = (\w+) \{(-?\d+); (.*)\} (\[.*\])"),
}


def parse_program(text: str, file: str = "") -> Program:
    """The program that ``text`` describes; Refusal with the line where it cannot be read."""
    head, *kernels = re.split(r"^(?=kernel )", text, flags=re.M)
    name, cores = "", {"aic": 0, "aiv": 0}
    symbols: dict[str, tuple[int, int]] = {}
    tensors: list[Tensor] = []
    outputs: list[Output] = []
    steps: list[Step] = []
    groups: list[Group] = []
    shards: list[tuple[str, str, int]] = []
    lengths: list[Length] = []
    for number, line in enumerate(head.splitlines(), 1):
        word, _, rest = line.partition(" ")
        where = Where(file=file, line=number, text=line)
        try:
            step = parse_step(word, rest)
        except ValueError as error:
            raise Refusal(f"cannot read a line of a program: {error}", where) from None
        if step is not None:
            steps.append(step)
            continue
        m = _LINES[word].fullmatch(rest) if word in _LINES else None
        if m is None:
            raise Refusal(f"cannot read a line of a program: {word!r}", where)
        if word == "program":
            name, cores = m[1], {"aic": int(m[2]), "aiv": int(m[3])}
        elif word == "symbol":
            symbols[m[1]] = (int(m[2]), int(m[3]))
        elif word == "tensor":
            tensors.append(Tensor(m[1], m[2], _dims(m[3]), m[4], json.loads(m[5])))
        elif word == "sharded":
            shards.append((json.loads(m[1]), m[2], int(m[3])))
        elif word == "length":
            lengths.append(Length(m[1], m[2], int(m[3]), parse_dim(m[4]), tuple(json.loads(m[5]))))
        elif word == "group":
            groups.append(Group(m[1], parse_dim(m[2]), parse_dim(m[3])))
        else:
            outputs.append(Output(json.loads(m[1]), m[2], _dims(m[3])))
    made = tuple(parse_kernel(k, file) for k in kernels)
    return Program(
        name,
        symbols,
        made,
        tuple(tensors),
        tuple(outputs),
        tuple(steps),
        cores,
        groups=tuple(groups),
        shards=tuple(shards),
        lengths=tuple(lengths),
    )
