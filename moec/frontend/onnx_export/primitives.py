"""How primitive ops are spelt in standard operators: one small function an op, in a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moec.frontend.onnx_export.scope import Scope
from moec.ir.data import ArrayData
from moec.ir.graph import Node
from moec.ir.types import F32, I32, I64, DType

Spelling = Callable[[Scope, Node, list[str]], "str | list[str]"]
"""``(scope, node, operand names) -> result names``; an absent operand's name is empty."""

SPELLINGS: dict[str, Spelling] = {}


def _spells(*ops: str) -> Callable[[Spelling], Spelling]:
    def register(fn: Spelling) -> Spelling:
        SPELLINGS.update(dict.fromkeys(ops, fn))
        return fn

    return register


def _plain(operator: str) -> Spelling:
    """An operator that takes the op's operands and nothing else."""
    return lambda s, n, x: s.one(operator, *x)


for _op, _operator in {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "pow": "Pow",
    "minimum": "Min",
    "maximum": "Max",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "and": "And",
    "or": "Or",
    "xor": "Xor",
    "not": "Not",
    "neg": "Neg",
    "abs": "Abs",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "reciprocal": "Reciprocal",
    "sin": "Sin",
    "cos": "Cos",
    "tanh": "Tanh",
    "erf": "Erf",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "sign": "Sign",
    "sigmoid": "Sigmoid",
    "relu": "Relu",
    "softplus": "Softplus",
    "is_nan": "IsNaN",
    "is_inf": "IsInf",
    "select": "Where",
}.items():
    SPELLINGS[_op] = _plain(_operator)


def _with_attrs(operator: str, *names: str) -> Spelling:
    """An operator whose attributes have the op's names."""

    def spell(s: Scope, n: Node, x: list[str]) -> str:
        attrs: dict[str, Any] = {k: int(v) if isinstance(v := n.attrs[k], bool) else v for k in names}
        return s.one(operator, *x, **attrs)

    return spell


SPELLINGS["softmax"] = _with_attrs("Softmax", "axis")
SPELLINGS["log_softmax"] = _with_attrs("LogSoftmax", "axis")
SPELLINGS["gather"] = _with_attrs("Gather", "axis")
SPELLINGS["gather_elements"] = _with_attrs("GatherElements", "axis")
SPELLINGS["scatter_elements"] = _with_attrs("ScatterElements", "axis", "reduction")
SPELLINGS["concat"] = _with_attrs("Concat", "axis")
SPELLINGS["transpose"] = _with_attrs("Transpose", "perm")
SPELLINGS["gelu"] = _with_attrs("Gelu", "approximate")


def _by_tuples(operator: str, attr: str) -> Spelling:
    """An operator whose index tuples, the second operand, must be i64."""

    def spell(s: Scope, n: Node, x: list[str]) -> str:
        indices = x[1] if n.operand(1).type.dtype is I64 else s.one("Cast", x[1], to=I64.onnx)
        return s.one(operator, x[0], indices, *x[2:], **{attr: n.attrs[attr]})

    return spell


SPELLINGS["gather_nd"] = _by_tuples("GatherND", "batch_dims")
SPELLINGS["scatter_nd"] = _by_tuples("ScatterND", "reduction")


@_spells("ne")
def _ne(s: Scope, n: Node, x: list[str]) -> str:
    return s.one("Not", s.one("Equal", *x))


@_spells("rsqrt")
def _rsqrt(s: Scope, n: Node, x: list[str]) -> str:
    return s.one("Reciprocal", s.one("Sqrt", *x))


@_spells("silu")
def _silu(s: Scope, n: Node, x: list[str]) -> str:
    return s.one("Mul", x[0], s.one("Sigmoid", x[0]))


@_spells("mod")
def _mod(s: Scope, n: Node, x: list[str]) -> str:
    if n.attrs["fmod"] or not n.result.type.dtype.is_float:
        return s.one("Mod", *x, fmod=int(n.attrs["fmod"]))
    return s.one("Sub", x[0], s.one("Mul", s.one("Floor", s.one("Div", *x)), x[1]))


@_spells("cast")
def _cast(s: Scope, n: Node, x: list[str]) -> str:
    return s.one("Cast", x[0], to=n.attrs["to"].onnx)


def _reduction(operator: str) -> Spelling:
    def spell(s: Scope, n: Node, x: list[str]) -> str:
        if not n.attrs["axes"]:
            return s.one("Identity", x[0])
        return s.one(operator, x[0], s.ints(*n.attrs["axes"]), keepdims=int(n.attrs["keepdims"]))

    return spell


for _kind in ("Sum", "Mean", "Max", "Min", "Prod"):
    SPELLINGS[f"reduce_{_kind.lower()}"] = _reduction(f"Reduce{_kind}")


@_spells("argmax", "argmin")
def _arg(s: Scope, n: Node, x: list[str]) -> str:
    operator = "ArgMax" if n.op == "argmax" else "ArgMin"
    a = n.attrs
    return s.one(operator, x[0], axis=a["axis"], keepdims=int(a["keepdims"]), select_last_index=int(a["last"]))


@_spells("cumsum")
def _cumsum(s: Scope, n: Node, x: list[str]) -> str:
    axis = s.constant(ArrayData(np.array(n.attrs["axis"], np.int64)), "axis")
    return s.one("CumSum", x[0], axis, exclusive=int(n.attrs["exclusive"]), reverse=int(n.attrs["reverse"]))


@_spells("matmul")
def _matmul(s: Scope, n: Node, x: list[str]) -> str:
    a, b = (n.operand(i).type.rank for i in (0, 1))
    flip, to = (n.attrs["transpose_a"], n.attrs["transpose_b"]), n.attrs["to"]
    if to is not None:
        x = [_as(s, name, to) for name in x]
    if a == b == 2 and any(flip) and n.result.type.dtype.is_float:
        return s.one("Gemm", *x, transA=int(flip[0]), transB=int(flip[1]))
    sides = [_flipped(s, name, rank) if f else name for name, rank, f in zip(x, (a, b), flip, strict=True)]
    return s.one("MatMul", *sides)


def _as(s: Scope, name: str, to: DType) -> str:
    return s.one("Cast", name, to=to.onnx)


def _flipped(s: Scope, name: str, rank: int) -> str:
    return s.one("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])


@_spells("reshape")
def _reshape(s: Scope, n: Node, x: list[str]) -> str:
    shape = n.attrs["shape"]
    symbolic = [i for i, d in enumerate(shape) if not isinstance(d, int)]
    if len(symbolic) == 1 and 0 not in shape:
        known = [d if isinstance(d, int) else -1 for d in shape]
        return s.one("Reshape", x[0], s.ints(*known))
    return s.one("Reshape", x[0], s.dims(shape), allowzero=1)


@_spells("expand")
def _expand(s: Scope, n: Node, x: list[str]) -> str:
    return s.one("Expand", x[0], s.dims(n.attrs["shape"]))


@_spells("tile")
def _tile(s: Scope, n: Node, x: list[str]) -> str:
    return s.one("Tile", x[0], s.dims(n.attrs["repeats"]))


@_spells("slice")
def _slice(s: Scope, n: Node, x: list[str]) -> str:
    a = n.attrs
    steps = [s.ints(a["step"])] if a["step"] != 1 else []
    return s.one("Slice", x[0], s.dim(a["start"]), s.dim(a["stop"]), s.ints(a["axis"]), *steps)


@_spells("pad")
def _pad(s: Scope, n: Node, x: list[str]) -> str:
    pads = s.dims((*n.attrs["before"], *n.attrs["after"]))
    return s.one("Pad", x[0], pads, s.scalar(n.attrs["value"], n.result.type))


@_spells("trilu")
def _trilu(s: Scope, n: Node, x: list[str]) -> str:
    k = s.constant(ArrayData(np.array(n.attrs["k"], np.int64)), "k")
    return s.one("Trilu", x[0], k, upper=int(n.attrs["upper"]))


@_spells("topk")
def _topk(s: Scope, n: Node, x: list[str]) -> list[str]:
    a = n.attrs
    options = {"axis": a["axis"], "largest": int(a["largest"]), "sorted": int(a["sorted"])}
    return s.node("TopK", [x[0], s.dim(a["k"])], 2, **options)


@_spells("argsort")
def _argsort(s: Scope, n: Node, x: list[str]) -> str:
    axis = n.attrs["axis"]
    size = s.dim(n.result.type.dims[axis])
    return s.node("TopK", [x[0], size], 2, axis=axis, largest=int(n.attrs["descending"]), sorted=1)[1]


@_spells("one_hot")
def _one_hot(s: Scope, n: Node, x: list[str]) -> str:
    a = n.attrs
    dtype = a["dtype"] if a["dtype"] in (F32, I64, I32) else F32
    values = s.constant(ArrayData(np.array([0, 1], dtype.carrier), dtype), "off_on")
    at = x[0] if n.operand(0).type.dtype is I64 else s.one("Cast", x[0], to=I64.onnx)
    hot = s.one("OneHot", at, s.dim(a["depth"]), values, axis=a["axis"])
    return hot if dtype is a["dtype"] else s.one("Cast", hot, to=a["dtype"].onnx)


@_spells("nonzero")
def _nonzero(s: Scope, n: Node, x: list[str]) -> str:
    return s.one("NonZero", x[0])


@_spells("iota")
def _iota(s: Scope, n: Node, x: list[str]) -> str:
    size = s.one("Reshape", s.dim(n.attrs["size"]), s.constant(ArrayData(np.zeros(0, np.int64)), "no_dims"))
    zero, one = (s.constant(ArrayData(np.array(v, np.int64)), "scalar") for v in (0, 1))
    y = s.one("Range", zero, size, one)
    return y if n.attrs["dtype"] is I64 else s.one("Cast", y, to=n.attrs["dtype"].onnx)


@_spells("range")
def _range(s: Scope, n: Node, x: list[str]) -> str:
    return s.one("Range", *x)


@_spells("dims")
def _dims(s: Scope, n: Node, x: list[str]) -> str:
    y = s.dims(n.attrs["values"])
    if n.attrs["scalar"]:
        return s.one("Reshape", y, s.constant(ArrayData(np.zeros(0, np.int64)), "no_dims"))
    return y


@_spells("constant")
def _constant(s: Scope, n: Node, x: list[str]) -> str:
    return s.constant(n.attrs["value"])


@_spells("to_host", "to_device", "read_start", "read_wait", "save", "after", "swap_out", "swap_in")
def _copy(s: Scope, n: Node, x: list[str]) -> str:
    return s.one("Identity", x[0])


@_spells("seed")
def _seed(s: Scope, n: Node, x: list[str]) -> str:
    shape = (1,) * n.result.type.rank
    return s.constant(ArrayData(np.full(shape, n.attrs["scale"]).astype(n.result.type.dtype.carrier)))


@_spells("bind_size", "device_size")
def _bind_size(s: Scope, n: Node, x: list[str]) -> str:
    s.bind(n.attrs["value"], x[0])
    return s.one("Identity", x[0])


@_spells("layer_norm")
def _layer_norm(s: Scope, n: Node, x: list[str]) -> str:
    axis, source = n.attrs["axis"], n.operand(0).type
    scale = x[1] if len(x) > 1 and x[1] else ""
    if not scale:
        scale = s.one("Expand", s.scalar(1, source), s.dims(source.dims[axis:]))
    bias = [x[2]] if len(x) > 2 and x[2] else []
    return s.one("LayerNormalization", x[0], scale, *bias, axis=axis, epsilon=n.attrs["eps"])


@_spells("histogram")
def _histogram(s: Scope, n: Node, x: list[str]) -> str:
    """Each bin's number against every element, summed."""
    bins = s.one("Reshape", s.dim(n.attrs["bins"]), s.constant(ArrayData(np.zeros(0, np.int64)), "no_dims"))
    zero, one = (s.constant(ArrayData(np.array(v, np.int64)), "scalar") for v in (0, 1))
    numbers = s.one("Unsqueeze", s.one("Range", zero, bins, one), s.ints(1))
    flat = s.one("Reshape", s.one("Cast", x[0], to=I64.onnx), s.ints(1, -1))
    hits = s.one("Cast", s.one("Equal", flat, numbers), to=I32.onnx)
    return s.one("ReduceSum", hits, s.ints(1), keepdims=0)


FUNCTIONS = {"histogram", "rms_norm"}
"""Primitive ops that get a function of their own, so that the graph shows one node."""
