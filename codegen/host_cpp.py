"""Steps of the host program as C++: events, collectives by HCCL, arithmetic on lists in host memory, sizes.

HCCL's functions, their parameters and the units of their counts are those of its API reference (CANN 8.0 to 8.5). What
the host computes are loops over small integer tensors; every op that ``HOST_OPS`` names has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from moec.codegen.lengths import Length
from moec.codegen.program import Program, Tensor
from moec.codegen.steps import COMPUTE, HOST, Bind, Collective, HostOp, Param, Record, Wait
from moec.ir.symbol import Dim, parse_dim

Printer = Callable[[Dim], str]

DATA_TYPES = {
    "f32": "FP32",
    "f16": "FP16",
    "bf16": "BFP16",
    "i64": "INT64",
    "i32": "INT32",
    "i16": "INT16",
    "i8": "INT8",
    "u64": "UINT64",
    "u32": "UINT32",
    "u16": "UINT16",
    "u8": "UINT8",
}
"""The kernel IR's dtypes as HCCL_DATA_TYPE_x."""

REDUCED = ("f32", "f16", "bf16", "i64", "i32", "i16", "i8")
"""Dtypes that HCCL reduces on Atlas A2 (API reference of HcclAllReduce and HcclReduceScatter)."""

INTEGERS = {"i64": "int64_t", "i32": "int32_t", "u8": "uint8_t"}
"""Dtypes that the host computes with; u8 is a truth value."""

BINARY = {
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    "div": "a / b",
    "min": "a < b ? a : b",
    "max": "a > b ? a : b",
    "lt": "a < b",
    "le": "a <= b",
    "gt": "a > b",
    "ge": "a >= b",
    "eq": "a == b",
    "ne": "a != b",
    "and": "a & b",
    "or": "a | b",
}
"""Elementwise ops of two operands; integer division rounds towards zero."""

FOLDS = {"reduce_sum": "y[at] += x[from]", "reduce_max": "y[at] = x[from] > y[at] ? x[from] : y[at]"}
HOST_OPS = (
    *BINARY,
    *FOLDS,
    "mod",
    "cast",
    "expand",
    "reshape",
    "slice",
    "concat",
    "cumsum",
    "iota",
    "numbers",
    "select",
)


def stream_name(stream: str) -> str:
    """The host program's variable of a stream."""
    return "stream" if stream == COMPUTE else f"stream_{stream}"


def variable(t: Tensor) -> str:
    """The host program's variable of a tensor."""
    return f"{'host' if t.kind == 'host' else 'dev'}_{t.name}"


def event_lines(step: Record | Wait) -> list[str]:
    """The call that records or waits."""
    event = f"event_{step.event}"
    if isinstance(step, Record):
        return [f'Check(aclrtRecordEvent({event}, {stream_name(step.stream)}), "aclrtRecordEvent");']
    if step.stream == HOST:
        return [f'Check(aclrtSynchronizeEvent({event}), "aclrtSynchronizeEvent");']
    return [f'Check(aclrtStreamWaitEvent({stream_name(step.stream)}, {event}), "aclrtStreamWaitEvent");']


def collective_lines(step: Collective, program: Program, dim: Printer) -> list[str]:
    """The statements of a collective. The communicator is ``comm_<group>``."""
    source, target = (variable(program.tensor(t)) for t in (step.source, step.target))
    kind = f"HCCL_DATA_TYPE_{DATA_TYPES[program.tensor(step.source).dtype]}"
    end = f"comm_{step.group}.comm, {stream_name(step.stream)}"
    count = f"static_cast<uint64_t>({dim(step.count)})"
    by = f"HCCL_REDUCE_{step.reduction.upper()}"
    if step.op == "all_to_all_v":
        send, receive = (program.tensor(t) for t in (step.send, step.receive))
        lists = [
            f"const ranks::Lists {name}({variable(t)}, sizeof({INTEGERS[t.dtype]}), comm_{step.group}.size, {count});"
            for name, t in (("send", send), ("receive", receive))
        ]
        ends = [
            f'send.Fit({source}_bytes / sizeof({_C[program.tensor(step.source).dtype]}), "{step.source}");',
            f'receive.Fit({target}_bytes / sizeof({_C[program.tensor(step.target).dtype]}), "{step.target}");',
        ]
        call = (
            f"HcclAlltoAllV({source}, send.counts.data(), send.starts.data(), {kind}, "
            f"{target}, receive.counts.data(), receive.starts.data(), {kind}, {end})"
        )
        return [*lists, *ends, f'ranks::Check({call}, "HcclAlltoAllV");']
    name, given = {
        "all_reduce": ("HcclAllReduce", f"{source}, {target}, {count}, {kind}, {by}"),
        "all_gather": ("HcclAllGather", f"{source}, {target}, {count}, {kind}"),
        "reduce_scatter": ("HcclReduceScatter", f"{source}, {target}, {count}, {kind}, {by}"),
        "all_to_all": ("HcclAlltoAll", f"{source}, {count}, {kind}, {target}, {count}, {kind}"),
    }[step.op]
    line = f'ranks::Check({name}({given}, {end}), "{name}");'
    return [line] if isinstance(step.count, int) else [f"if ({dim(step.count)} > 0) {{", f"    {line}", "}"]


_C = {
    "f32": "float",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "u64": "uint64_t",
    "u32": "uint32_t",
    "u16": "uint16_t",
    "i16": "int16_t",
    "i8": "int8_t",
    **INTEGERS,
}


def bind_lines(step: Bind, program: Program, cpp: str, dim: Printer) -> list[str]:
    """The statement that makes a size of what the host has read."""
    t = program.tensor(step.source)
    read = f"*static_cast<const {INTEGERS[t.dtype]} *>({variable(t)})"
    return [
        f'[[maybe_unused]] const int64_t {cpp} = Within({read}, "{step.symbol}", {dim(step.low)}, {dim(step.high)});'
    ]


def length_line(length: Length, program: Program, cpp: str, dim: Printer) -> str:
    """The statement that, when all is done, checks a size that only the device knew."""
    t = program.tensor(length.tensor)
    room = f'"{length.symbol}", {dim(length.low)}, {dim(length.most)}'
    return f"[[maybe_unused]] const int64_t {cpp} = Within(Number<{INTEGERS[t.dtype]}>({variable(t)}), {room});"


def host_lines(step: HostOp, program: Program, dim: Printer) -> list[str]:
    """The statements of an op on the host: ``x0``, ``x1``, ... are its operands, ``y`` its result."""
    y = program.tensor(step.target)
    xs = [program.tensor(t) for t in step.sources]
    params = dict(step.params)
    lines = [f"const auto *x{i} = static_cast<const {INTEGERS[x.dtype]} *>({variable(x)});" for i, x in enumerate(xs)]
    lines.append(f"auto *y = static_cast<{INTEGERS[y.dtype]} *>({variable(y)});")
    element = INTEGERS[y.dtype]
    if step.op == "numbers":
        values = params["values"]
        assert isinstance(values, tuple)
        return lines + [f"y[{i}] = static_cast<{element}>({dim(parse_dim(str(v)))});" for i, v in enumerate(values)]
    if step.op == "concat":
        return lines + _concat(xs, y, int(str(params["axis"])), dim)
    if step.op in FOLDS or step.op == "cumsum":
        return lines + _along(step.op, xs[0], y, params, dim)
    if step.op == "reshape":
        return [*lines, f"std::copy(x0, x0 + {dim(y.elements)}, y);"]
    head, indent = _loops(y.shape, dim)
    to = f"y[{_flat(_names(y.shape), y.shape, dim)}]"
    if step.op == "iota":
        return [*lines, *head, f"{indent}{to} = static_cast<{element}>(i0);", *_closed(head)]
    if step.op == "slice":
        axis, start, step_ = (int(str(params["axis"])), parse_dim(str(params["start"])), params["step"])
        names = _names(y.shape)
        along = names[axis] if step_ == 1 else f"{names[axis]} * {step_}"
        names[axis] = along if start == 0 else f"({along} + {dim(start)})"
        read = f"x0[{_flat(names, xs[0].shape, dim)}]"
        return [*lines, *head, f"{indent}{to} = {read};", *_closed(head)]
    reads = [f"x{i}[{_flat(_broadcast(x.shape, y.shape), x.shape, dim)}]" for i, x in enumerate(xs)]
    if step.op in BINARY:
        values_ = [f"{indent}const int64_t {n} = {r};" for n, r in zip("ab", reads, strict=True)]
        body = [*values_, f"{indent}{to} = static_cast<{element}>({BINARY[step.op]});"]
    elif step.op == "mod":
        b = f"{indent}const int64_t b = {reads[1]};"
        body = [b, f"{indent}{to} = static_cast<{element}>(({reads[0]} % b + b) % b);"]
    elif step.op == "select":
        body = [f"{indent}{to} = {reads[0]} != 0 ? {reads[1]} : {reads[2]};"]
    elif step.op == "cast" and y.dtype == "u8":
        body = [f"{indent}{to} = {reads[0]} != 0;"]
    else:
        body = [f"{indent}{to} = static_cast<{element}>({reads[0]});"]
    return [*lines, *head, *body, *_closed(head)]


def _names(shape: Sequence[Dim]) -> list[str]:
    return [f"i{d}" for d in range(len(shape))]


def _loops(shape: Sequence[Dim], dim: Printer) -> tuple[list[str], str]:
    """A loop for each dimension, and the indent inside."""
    lines = [f"{'    ' * d}for (int64_t i{d} = 0; i{d} < {dim(n)}; ++i{d}) {{" for d, n in enumerate(shape)]
    return lines, "    " * len(shape)


def _closed(head: Sequence[str]) -> list[str]:
    return ["    " * d + "}" for d in reversed(range(len(head)))]


def _flat(names: Sequence[str], shape: Sequence[Dim], dim: Printer) -> str:
    """The place of an element in a dense tensor."""
    terms = []
    for d, name in enumerate(names):
        stride: Dim = prod(shape[d + 1 :], start=1)
        if name != "0":
            terms.append(name if stride == 1 else f"{name} * ({dim(stride)})")
    return " + ".join(terms) or "0"


def _broadcast(shape: Sequence[Dim], to: Sequence[Dim]) -> list[str]:
    """The indices of a tensor that is repeated to a shape."""
    lead = len(to) - len(shape)
    return ["0" if n == 1 and to[lead + d] != 1 else f"i{lead + d}" for d, n in enumerate(shape)]


def _concat(xs: Sequence[Tensor], y: Tensor, axis: int, dim: Printer) -> list[str]:
    lines: list[str] = []
    start: Dim = 0
    for i, x in enumerate(xs):
        head, indent = _loops(x.shape, dim)
        names = _names(x.shape)
        read = f"x{i}[{_flat(names, x.shape, dim)}]"
        names[axis] = f"({names[axis]} + {dim(start)})"
        lines += [*head, f"{indent}y[{_flat(names, y.shape, dim)}] = {read};", *_closed(head)]
        start = start + x.shape[axis]
    return lines


def _along(op: str, x: Tensor, y: Tensor, params: Mapping[str, Param], dim: Printer) -> list[str]:
    """Folds over axes, and running sums: y starts as what the fold starts with, then takes every element of x."""
    head, indent = _loops(x.shape, dim)
    names = _names(x.shape)
    here = _flat(names, x.shape, dim)
    if op == "cumsum":
        axis = int(str(params["axis"]))
        back = list(names)
        back[axis] = f"({names[axis]} - 1)"
        value = f"x0[{here}] + ({names[axis]} > 0 ? y[{_flat(back, x.shape, dim)}] : 0)"
        return [*head, f"{indent}y[{here}] = {value};", *_closed(head)]
    axes = params["axes"]
    assert isinstance(axes, tuple)
    keep = bool(params["keepdims"])
    at = [("0" if d in axes else n) for d, n in enumerate(names) if keep or d not in axes]
    first = "0" if op == "reduce_sum" else f"std::numeric_limits<{INTEGERS[y.dtype]}>::lowest()"
    total = dim(prod(y.shape, start=1))
    fold = FOLDS[op].replace("x[from]", f"x0[{here}]").replace("[at]", f"[{_flat(at, y.shape, dim)}]")
    return [f"std::fill(y, y + {total}, {first});", *head, f"{indent}{fold};", *_closed(head)]
