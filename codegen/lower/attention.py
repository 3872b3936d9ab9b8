"""Lowering of attention and attention_stats to the mixed kernel, with its workspace in device memory."""

from __future__ import annotations

from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.attention import attention_kernel
from moec.codegen.kernels.attention_packed import packed_kernel
from moec.codegen.kernels.attention_tile import Attention, Mask, forward_tile
from moec.codegen.lower.base import Lowering, device_dtype, lowering, node_name, where
from moec.codegen.scalar import Arg, Scalar
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim

CUBE = ("f32", "f16", "bf16")
NAMES = ("B", "S", "T", "offset")
"""Run-time arguments: batch, queries, keys, and the key position of the first query."""


def refuse(node: Node, what: str, todo: str) -> NoKernel:
    return NoKernel(Problem(f"{node.op} {what} has no kernel", where(node), todo))


def number(node: Node, dim: Dim, what: str) -> int:
    """``dim`` as a number; kernels are made for it."""
    if not isinstance(dim, int):
        raise refuse(node, f"with {dim} {what}", "give it as a number")
    return dim


def optional(node: Node, index: int) -> Value | None:
    return node.operands[index] if index < len(node.operands) else None


def mask_of(node: Node, value: Value, batch: Dim, heads: int, queries: Dim, keys: Dim) -> Mask:
    """How the mask broadcasts to [B, N, S, T]."""
    dims = (1, 1, 1, 1, *value.type.dims)[-4:]
    wanted = (batch, heads, queries, keys)
    if dims[3] not in (1, keys):
        raise refuse(node, f"with a mask of {dims[3]} keys for {keys}", "expand the mask along the keys")
    for have, want in zip(dims[:3], wanted, strict=False):
        if have not in (1, want):
            raise refuse(node, f"with a mask of {have} for {want}", "expand the mask")
    dtype = device_dtype(value.type.dtype)
    if dtype not in ("u8", *CUBE):
        raise refuse(node, f"with a mask of {dtype}", "cast the mask to bool or float")
    return Mask(dtype, *(have == want for have, want in zip(dims, wanted, strict=True)))


def described(node: Node, mask_at: int, rope_at: int, stats: bool = False) -> tuple[Attention, dict[str, Dim]]:
    """What the kernel must compute, and the dimensions that are run-time arguments; ``mask_at`` and ``rope_at``:
    operands of the mask and of the rotary parts, with sinks between if there is one."""
    q, key, v = (node.operand(i) for i in range(3))
    mask, sinks = optional(node, mask_at), optional(node, mask_at + 1) if rope_at > mask_at + 1 else None
    q_rope, k_rope = optional(node, rope_at), optional(node, rope_at + 1)
    parts = [x.type.dtype.name for x in (q, key, v, q_rope, k_rope) if x is not None]
    if len(set(parts)) > 1 or parts[0] not in CUBE:
        raise refuse(node, f"of {', '.join(sorted(set(parts)))}", f"use one of {', '.join(CUBE)} for q, k and v")
    batch, heads, queries, width = q.type.dims
    _, kv_heads, keys, values = v.type.dims
    attrs = node.attrs
    if attrs["scale"] <= 0:
        raise refuse(node, f"with scale {attrs['scale']}", "use a positive scale")
    packed = optional(node, rope_at + 2) is not None
    dims = dict(zip(NAMES, (batch, queries, keys, attrs["offset"]), strict=True))
    scalars: dict[str, Scalar] = {n: d if isinstance(d, int) else Arg(n) for n, d in dims.items()}
    if packed:
        del dims["T"]
    n = number(node, heads, "heads")
    described = Attention(
        scalars["B"],
        scalars["S"],
        scalars["S"] if packed else scalars["T"],
        n,
        number(node, kv_heads, "key heads"),
        number(node, width, "columns"),
        number(node, values, "columns"),
        parts[0],
        float(attrs["scale"]),
        bool(attrs["causal"]),
        scalars["offset"],
        attrs["window"],
        attrs["softcap"],
        None if mask is None else mask_of(node, mask, batch, n, queries, keys),
        "" if sinks is None else device_dtype(sinks.type.dtype),
        0 if q_rope is None else number(node, q_rope.type.dims[3], "rotary columns"),
        0 if k_rope is None else number(node, k_rope.type.dims[1], "rotary heads"),
        attrs["empty_rows"] == "zero",
        stats,
        packed=packed,
    )
    return described, {n: d for n, d in dims.items() if not isinstance(d, int)}


def workspace(cx: Lowering, kernel: Kernel) -> dict[str, str]:
    """Device buffers for what the kernel's cores tell one another: a temporary for each parameter of that role."""
    out = {}
    for p in kernel.params:
        if p.role == "workspace":
            shape = [d for d in p.shape if isinstance(d, int)]
            assert len(shape) == len(p.shape)
            out[p.name] = cx.scratch(f"{kernel.name}_{p.name}", p.dtype, shape)
    return out


def sequences(cx: Lowering, node: Node, a: Attention, at: int) -> dict[str, str]:
    """What kernels read of packed sequences, made from operand ``at``; nothing where there is none."""
    given = optional(node, at)
    if given is None:
        return {}
    queries, (count,) = node.operand(0).type.dims[2], given.type.dims
    operands = {n: cx.scratch(n, "i32", (queries,)) for n in ("seqFirst", "seqAfter")}
    dtype, known = device_dtype(given.type.dtype), count if isinstance(count, int) else None
    args = ({} if isinstance(queries, int) else {"S": queries}) | ({} if known is not None else {"C": count})
    kernel = packed_kernel("attention_packed", cx.capacities, a, dtype, known)
    cx.launch(node, kernel, operands | {"cuSeqlens": cx.tensor(given)}, args)
    return operands


def _lower(cx: Lowering, node: Node, stats: bool) -> None:
    a, args = described(node, 3, 5, stats)
    queries, keys = node.operand(0).type.dims[2], node.operand(1).type.dims[2]
    tile = forward_tile(a, cx.size(queries), cx.size(keys), cx.capacities, node_name(node))
    kernel = attention_kernel(f"{node.op}_{a.dtype}", cx.capacities, tile, a)
    operands = {"q": cx.tensor(node.operand(0)), "k": cx.tensor(node.operand(1)), "v": cx.tensor(node.operand(2))}
    for index, name in ((3, "mask"), (4, "sinks"), (5, "qRope"), (6, "kRope")):
        value = optional(node, index)
        if value is not None:
            operands[name] = cx.tensor(value)
    operands |= sequences(cx, node, a, 7)
    operands["y"] = cx.result(node)
    if stats:
        operands |= {"softmaxMax": cx.result(node, 1), "softmaxSum": cx.result(node, 2)}
    cx.launch(node, kernel, operands | workspace(cx, kernel), args)


@lowering("attention")
def attention(cx: Lowering, node: Node) -> None:
    _lower(cx, node, False)


@lowering("attention_stats")
def attention_stats(cx: Lowering, node: Node) -> None:
    _lower(cx, node, True)
