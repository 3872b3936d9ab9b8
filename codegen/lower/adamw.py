"""Lowering of apply_adamw: a kernel for what all elements share, and one for the elements."""

from __future__ import annotations

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.adamw import AdamW, step_numbers, update
from moec.codegen.kernels.vector.assemble import Job, Sink, Source, assemble
from moec.codegen.kernels.vector.values import Values
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes, numel
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node

FLOATS = ("f32", "f16", "bf16")
SHARED = ("size", "root", "kept")


@lowering("apply_adamw")
def apply_adamw(cx: Lowering, node: Node) -> None:
    master, _, _, grad, step, _ = (node.operand(i) for i in range(6))
    if not {grad.type.dtype.name, node.attrs["to"].name} <= set(FLOATS) or step.type.dtype.name not in ("i32", "i64"):
        what = f"apply_adamw of {grad.type} at step {step.type} to {node.attrs['to']} has no kernel"
        raise NoKernel(Problem(what, where(node), "f32, f16 and bf16 at steps of i32 and i64 have one"))
    a = AdamW(*(node.attrs[name] for name in ("beta1", "beta2", "eps", "weight_decay")))
    shared = _shared(cx, node, a)
    k, v = KernelBuilder("adamw", "aiv", cx.capacities), Values()
    sizes = Sizes(k, cx)
    count = sizes.of(numel(master.type.dims), "elems")
    sources, operands = [], {}
    given = {}
    for i, name in enumerate(("master", "m", "v", "grad")):
        value = node.operand(i)
        dtype = device_dtype(value.type.dtype)
        given[name] = v.input("full", dtype)
        sources.append(Source(given[name], k.gm(name, dtype, (count,), "in")))
        operands[name] = cx.tensor(value)
    ones = []
    for name, tensor in shared.items():
        ones.append(v.input("one", "f32"))
        sources.append(Source(ones[-1], k.gm(name, "f32", (1,), "in")))
        operands[name] = tensor
    new, m, s = update(
        v, a, given["master"], given["m"], given["v"], v.cast(given["grad"], "f32"), (ones[0], ones[1], ones[2])
    )
    to = device_dtype(node.attrs["to"])
    param = v.scalar("Muls", new, 1.0) if to == "f32" else v.cast(new, to)
    sinks = []
    for i, (name, made) in enumerate((("param", param), ("new_master", new), ("new_m", m), ("new_v", s))):
        sinks.append(Sink(made, k.gm(name, made.dtype, (count,), "out")))
        operands[name] = cx.result(node, i)
    blocks = assemble(Job(k, v, 1, count, 2**40, tuple(sources), tuple(sinks)))
    cx.launch(node, k.finish(blocks), operands, sizes.given)


def _shared(cx: Lowering, node: Node, a: AdamW) -> dict[str, str]:
    """Names and tensors of the three numbers that all elements share."""
    step = device_dtype(node.operand(4).type.dtype)
    k, v = KernelBuilder("adamw_step", "aiv", cx.capacities), Values()
    number, lr = v.input("full", step), v.input("full", "f32")
    whole = v.cast(number, "i32", "NONE" if step == "i64" else "")
    made = step_numbers(v, a, v.cast(whole, "f32", "RINT"), lr)
    sources = (Source(number, k.gm("step", step, (1,), "in")), Source(lr, k.gm("lr", "f32", (1,), "in")))
    sinks = tuple(Sink(value, k.gm(name, "f32", (1,), "out")) for name, value in zip(SHARED, made, strict=True))
    blocks = assemble(Job(k, v, 1, 1, 1, sources, sinks))
    tensors = {name: cx.scratch(f"adamw_{name}", "f32", (1,)) for name in SHARED}
    operands = {"step": cx.tensor(node.operand(4)), "lr": cx.tensor(node.operand(5)), **tensors}
    cx.launch(node, k.finish(blocks), operands, {})
    return tensors
