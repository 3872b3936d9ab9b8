"""Gated activations: act(gate) * (up + up_offset), where gate and up share the rows of one tensor."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.vector.assemble import Job, Sink, Source, assemble
from moec.codegen.kernels.vector.functions import ACTIVATIONS, silu
from moec.codegen.kernels.vector.values import Val, Values


@dataclass(frozen=True)
class Activation:
    """``glu``: none (act alone), chunked (gate is a row's first half) or interleaved (gate is its even columns)."""

    activation: str
    glu: str
    alpha: float = 1.0
    limit: float | None = None
    up_offset: float = 0.0


def swiglu_kernel(
    name: str, caps: Capacities, width: int, dtype: str, a: Activation, most_rows: int = 2**31 - 1
) -> Kernel:
    """h [S, width or 2 width] to y [S, width]; S is the run-time argument ``rows``."""
    k = KernelBuilder(name, "aiv", caps)
    rows = k.arg("rows", 0, most_rows)
    full = width if a.glu == "none" else 2 * width
    h, y = k.gm("h", dtype, (rows, full), "in"), k.gm("y", dtype, (rows, width), "out")
    v = Values()
    up: Val | None = None
    if a.glu == "interleaved":
        pairs = v.input("double", dtype)
        wide = v.cast(pairs, "f32")
        gate, up = v.emit("Even", "full", "f32", wide), v.emit("Odd", "full", "f32", wide)
        sources: tuple[Source, ...] = (Source(pairs, h),)
    elif a.glu == "chunked":
        first, second = v.input("full", dtype), v.input("full", dtype)
        gate, up = v.cast(first, "f32"), v.cast(second, "f32")
        sources = (Source(first, h, 0, full), Source(second, h, width, full))
    else:
        only = v.input("full", dtype)
        gate, sources = v.cast(only, "f32"), (Source(only, h),)
    out = v.cast(_activate(v, gate, up, a), dtype)
    if out in v.inputs:
        out = v.scalar("Muls", out, 1.0)
    job = Job(k, v, rows, width, width, sources, (Sink(out, y),))
    return k.finish(assemble(job))


def _activate(v: Values, gate: Val, up: Val | None, a: Activation) -> Val:
    if a.limit is not None:
        gate = v.scalar("Mins", gate, a.limit)
        up = None if up is None else v.scalar("Maxs", v.scalar("Mins", up, a.limit), -a.limit)
    y = silu(v, gate, a.alpha) if a.activation == "silu" else ACTIVATIONS[a.activation](v, gate)
    if up is None:
        return y
    return v.mul(y, v.scalar("Adds", up, a.up_offset) if a.up_offset else up)
