"""Lowering of what the host does: reads, steps on what it has read, sizes, and copies back to the device.

A read is a copy on the copy stream; the host waits where it first touches what came. A size that is left to the device
(``device_size``) is read by the kernels themselves, where nothing but kernels needs it; else the host reads it as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moec.codegen.host_cpp import HOST_OPS, INTEGERS
from moec.codegen.lower.base import Lowering, device_dtype, lowering, node_name, where
from moec.codegen.steps import COPY, Bind, HostOp, Param
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim

MANY = 4096
"""Numbers of a constant that are still written into the host program."""


@lowering("to_host")
@lowering("read_start")
def read(cx: Lowering, node: Node) -> None:
    cx.copy(node, cx.parked(node), cx.tensor(node.operand(0)), COPY)


@lowering("read_wait")
def read_wait(cx: Lowering, node: Node) -> None:
    cx.alias(node.result, node.operand(0))


@lowering("to_device")
def to_device(cx: Lowering, node: Node) -> None:
    cx.copy(node, cx.result(node), cx.on_host(node, node.operand(0)), COPY)


@lowering("bind_size")
@lowering("device_size")
def bind_size(cx: Lowering, node: Node) -> None:
    symbol = str(node.attrs["value"])
    if symbol not in cx.module.symbols:
        raise NoKernel(Problem(f"{node.op} of {symbol}, which is no symbol", where(node)))
    kind = node.operand(0).type.dtype.name
    if kind not in ("i32", "i64"):
        raise NoKernel(Problem(f"{node.op} of {kind} has no lowering", where(node), "sizes of i32 and i64 have one"))
    low, high = cx.module.symbols[symbol]
    most: Dim = node.attrs.get("at_most", high)
    if symbol in cx.to_device:
        cx.length(node, symbol, low, most)
        cx.alias(node.result, node.operand(0))
        return
    cx.add(Bind(symbol, cx.on_host(node, node.operand(0)), low, most, (node_name(node),)))
    cx.alias(node.result, node.operand(0))


@lowering("dims")
def dims(cx: Lowering, node: Node) -> None:
    made = cx.host_tensor(node.result, f"{node.op}_host")
    cx.add(HostOp("numbers", made, (), _numbers(node), (node_name(node),)))
    cx.copy(node, cx.result(node), made, COPY)


@lowering("host")
def host(cx: Lowering, node: Node) -> None:
    """The steps of the function one after the other."""
    graph = cx.module.functions[node.attrs["fn"]]
    made = {v: cx.on_host(node, operand) for v, operand in zip(graph.inputs, node.operands, strict=True) if operand}
    for inner in graph:
        _inner(cx, inner, made)
    for result, value in zip(node.results, graph.outputs, strict=True):
        cx.stored(result, made[value])


def _inner(cx: Lowering, node: Node, made: dict[Value, str]) -> None:
    """One op on the host."""
    if node.op == "bind_size":
        low, high = cx.module.symbols[str(node.attrs["value"])]
        source = made[node.operand(0)]
        cx.add(Bind(str(node.attrs["value"]), source, low, high, (node_name(node),)))
        made[node.result] = source
        return
    if node.op not in _PARAMS and node.op not in HOST_OPS:
        todo = "sync-removal moves what only the device needs to the device; a host step has " + ", ".join(
            sorted({*_PARAMS, *HOST_OPS} - {"numbers"})
        )
        raise NoKernel(Problem(f"op '{node.op}' in a host step has no lowering", where(node), todo))
    for value in (*node.operands, *node.results):
        if value is not None and device_dtype(value.type.dtype) not in INTEGERS:
            what = f"{node.op} of {value.type.dtype} in a host step has no lowering"
            raise NoKernel(Problem(what, where(node), "a host step computes with i32, i64 and bool"))
    params = _PARAMS[node.op](node) if node.op in _PARAMS else ()
    target = cx.host_tensor(node.result, node.op)
    sources = tuple(made[v] for v in node.operands if v is not None)
    op = "numbers" if node.op in ("constant", "dims") else node.op
    cx.add(HostOp(op, target, sources, params, (node_name(node),)))
    made[node.result] = target


def _numbers(node: Node) -> tuple[tuple[str, Param], ...]:
    return (("values", tuple(str(d) for d in node.attrs["values"])),)


def _constant(node: Node) -> tuple[tuple[str, Param], ...]:
    array = np.asarray(node.attrs["value"].numpy())
    if array.size > MANY:
        raise NoKernel(Problem(f"a constant of {array.size} numbers in a host step", where(node), f"at most {MANY}"))
    return (("values", tuple(int(v) for v in array.reshape(-1))),)


def _axis(node: Node) -> int:
    return int(node.attrs["axis"]) % max(1, len(node.operand(0).type.dims))


def _fold(node: Node) -> tuple[tuple[str, Param], ...]:
    rank = len(node.operand(0).type.dims)
    axes = tuple(int(a) % rank for a in node.attrs["axes"])
    return (("axes", axes), ("keepdims", int(node.attrs["keepdims"])))


def _slice(node: Node) -> tuple[tuple[str, Param], ...]:
    step, start, size = int(node.attrs["step"]), node.attrs["start"], node.operand(0).type.dims[_axis(node)]
    if step <= 0:
        raise NoKernel(Problem("a slice backwards in a host step has no lowering", where(node)))
    first = size + start if isinstance(start, int) and start < 0 else start
    return (("axis", _axis(node)), ("start", str(first)), ("step", step))


def _cumsum(node: Node) -> tuple[tuple[str, Param], ...]:
    if node.attrs["exclusive"] or node.attrs["reverse"]:
        raise NoKernel(Problem("a cumsum in a host step that is exclusive or reverse has no lowering", where(node)))
    return (("axis", _axis(node)),)


_PARAMS: dict[str, Callable[[Node], Any]] = {
    "constant": _constant,
    "dims": _numbers,
    "iota": lambda node: (),
    "slice": _slice,
    "concat": lambda node: (("axis", _axis(node)),),
    "cumsum": _cumsum,
    "reduce_sum": _fold,
    "reduce_max": _fold,
    "expand": lambda node: (),
    "cast": lambda node: (),
    "reshape": lambda node: (),
}
