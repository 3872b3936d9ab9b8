"""A small instance of every op that can reach a kernel, to be lowered with each element type that the op accepts.

Operands are (dtype, shape); dtype ``x`` stands for the type that varies. ``None`` is an operand that is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from moec.codegen.capacities import Capacities
from moec.codegen.lower import lower_module
from moec.codegen.program import Program
from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module
from moec.ir.group import Group
from moec.ir.symbol import sym
from moec.ir.types import DTYPES, DType, TensorType
from moec.ops.build import make_node
from moec.ops.registry import OPS

Operand = tuple[str, tuple[int, ...]] | None
Instance = tuple[Sequence[Operand], Mapping[str, Any]]
X = "x"
A = (X, (5, 24))
FLAT = (X, (24,))
ONE = (X, ())
F32, I64 = DTYPES["f32"], DTYPES["i64"]
PAIR = Group("ep", 2, 1)

ROUTE: dict[str, Any] = {
    "top_k": 2, "score": "softmax", "score_order": "before_topk", "groups": 1, "group_top_k": 1, "group_score": "none",
    "group_mask": "none", "renormalize": True, "renormalize_eps": 0.0, "scale": 1.0, "score_dtype": F32,
    "weights_dtype": F32,
}  # fmt: skip
GLU = {"activation": "silu", "glu": "chunked", "alpha": 1.0, "limit": None, "up_offset": 0.0}
HEADS = (X, (1, 2, 16, 64))
STATS = ("f32", (1, 2, 16))
CAUSAL = {
    "scale": 0.125, "causal": True, "offset": 0, "window": None, "softcap": None, "empty_rows": "zero",
}  # fmt: skip
AXIS = {"axis": 1}
FOLD = {"axes": (1,), "keepdims": True}
INDICES = ("i64", (3, 2))

_BINARY = ("add", "sub", "mul", "div", "pow", "minimum", "maximum")
_CONDITIONS = ("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor")
_UNARY = (
    *("not", "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf", "floor", "ceil"),
    *("round", "sign", "sigmoid", "silu", "relu", "softplus", "is_nan", "is_inf", "save", "after"),
    *("to_host", "to_device", "read_start", "read_wait", "swap_out", "swap_in"),
)

INSTANCES: dict[str, list[Instance]] = {
    **{name: [((A, A), {}), ((A, FLAT), {})] for name in (*_BINARY, *_CONDITIONS)},
    **{name: [((A,), {"name": "n"} if "name" in OPS[name].attrs else {})] for name in _UNARY},
    "mod": [((A, A), {"fmod": fmod}) for fmod in (False, True)],
    "gelu": [((A,), {"approximate": how}) for how in ("none", "tanh")],
    "cast": [((A,), {"to": t}) for t in DTYPES.values() if t.kind != "opaque"],
    "select": [((("bool", (5, 24)), A, A), {}), ((("bool", (5, 1)), A, FLAT), {})],
    **{
        f"reduce_{fold}": [((A,), FOLD), ((A,), {"axes": (0,), "keepdims": False}), ((A,), {**FOLD, "axes": (0, 1)})]
        for fold in ("sum", "mean", "max", "min", "prod")
    },
    **{
        name: [((A,), {"axis": axis, "keepdims": False, "last": last}) for axis in (0, 1) for last in (False, True)]
        for name in ("argmax", "argmin")
    },
    **{name: [((A,), {"axis": axis}) for axis in (0, 1)] for name in ("softmax", "log_softmax")},
    "cumsum": [((A,), {"axis": axis, "exclusive": axis == 0, "reverse": axis == 1}) for axis in (0, 1)],
    "gather": [((A, (t, (3,))), {"axis": axis}) for axis in (0, 1) for t in ("i64", "i32")],
    "gather_elements": [((A, (t, (5, 3))), AXIS) for t in ("i64", "i32")] + [((A, ("i64", (2, 24))), {"axis": 0})],
    "gather_nd": [((A, ("i64", (3, n))), {"batch_dims": 0}) for n in (1, 2)]
    + [(((X, (5, 4, 6)), ("i64", (5, 3, 1))), {"batch_dims": 1})],
    "scatter_elements": [
        ((A, ("i64", (5, 3)), (X, (5, 3))), {"axis": axis, "reduction": how})
        for how in ("none", "add", "mul", "max", "min")
        for axis in (0, 1)
    ],
    "scatter_nd": [
        ((A, ("i64", (3, n)), (X, (3, 24)[: 3 - n])), {"reduction": how})
        for how in ("none", "add", "mul", "max", "min")
        for n in (1, 2)
    ],
    "one_hot": [((("i64", (5, 2)),), {"depth": 7, "axis": axis, "dtype": X}) for axis in (0, 1, 2)]
    + [((A,), {"depth": 7, "axis": 2, "dtype": F32})],
    "nonzero": [((A,), {"count": sym("n")})],
    "topk": [((A,), {"k": 3, "axis": axis, "largest": axis == 1, "sorted": True}) for axis in (0, 1)],
    "argsort": [((A,), {"axis": axis, "descending": axis == 1}) for axis in (0, 1)],
    "histogram": [((A,), {"bins": 7})],
    "gating": [(((X, (5, 16)), bias), ROUTE) for bias in (None, (X, (16,)))],
    "gating_grad": [(((X, (5, 16)), None, ("i32", (5, 2)), ("f32", (5, 2))), ROUTE)],
    "balance_loss": [(((X, (5, 16)),), {"form": "cv_squared", "score": "softmax", "coefficient": 0.1})],
    "all_reduce": [((A,), {"group": PAIR, "reduction": how}) for how in ("sum", "max", "min")],
    "all_gather": [((A,), {"group": PAIR, "axis": axis}) for axis in (0, 1)],
    "reduce_scatter": [(((X, (4, 24)),), {"group": PAIR, "axis": axis, "reduction": "sum"}) for axis in (0, 1)],
    "all_to_all": [(((X, (4, 24)),), {"group": PAIR, "split_axis": a, "concat_axis": 1 - a}) for a in (0, 1)],
    "group_rank": [((), {"group": PAIR})],
    "sparse24": [((A,), {})],
    "dense24": [(((X, (5, 12)), ("u8", (5, 3))), {})],
    "permute": [((A, ("i32", (5, 2)), ("i32", (4,))), {})],
    "unpermute": [(((X, (10, 24)), ("i32", (5, 2)), w), {}) for w in (None, (X, (5, 2)))],
    "unpermute_grad": [((A, (X, (10, 24)), ("i32", (5, 2)), (X, (5, 2))), {})],
    "grouped_matmul": [
        ((A, (X, (3, 16, 24) if by_row else (3, 24, 16)), ("i32", (3,)), bias), {"transpose_weight": by_row})
        for by_row in (True, False)
        for bias in (None, (X, (3, 16)))
    ],
    "grouped_matmul_dw": [((A, (X, (5, 16)), ("i32", (3,))), {"to": to}) for to in (F32, X)],
    "segment_sum": [((A, ("i32", (3,))), {"to": to}) for to in (F32, None)],
    "swiglu": [((A,), {**GLU, "activation": act}) for act in ("silu", "gelu", "gelu_tanh", "relu")],
    "swiglu_grad": [((A, (X, (5, 12))), GLU)],
    "matmul": [
        ((A, (X, (16, 24) if t else (24, 16))), {"transpose_a": False, "transpose_b": t, "to": None})
        for t in (False, True)
    ]
    + [(((X, (2, 5, 24)), (X, (2, 24, 16))), {"transpose_a": False, "transpose_b": False, "to": F32})],
    "rms_norm": [((A, w), {"eps": 1e-6}) for w in (None, FLAT)],
    "layer_norm": [((A, FLAT, b), {"eps": 1e-6, "axis": 1}) for b in (None, FLAT)],
    "cross_entropy": [(((X, (5, 24)), ("i64", (5,))), {"ignore": -100})],
    "apply_adamw": [
        (
            (*[("f32", (40,))] * 3, (X, (40,)), ("i64", ()), ("f32", ())),
            {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "to": X},
        )
    ],
    "rope": [
        (((X, (1, 2, 5, 16)), (t, (5, 16)), (t, (5, 16))), {"rotary_dim": 16, "layout": layout})
        for layout in ("half", "interleaved")
        for t in (X, "f32")
    ],
    "seed": [((ONE,), {"scale": 1.0})],
    "reshape": [((A,), {"shape": (24, 5)})],
    "transpose": [((A,), {"perm": (1, 0)}), (((X, (2, 3, 40)),), {"perm": (1, 0, 2)})],
    "concat": [((A, A), {"axis": axis}) for axis in (0, 1)],
    "slice": [((A,), {"axis": axis, "start": 1, "stop": 4, "step": step}) for axis in (0, 1) for step in (1, 2)],
    "pad": [((A,), {"before": (1, 0), "after": (0, 3), "value": value}) for value in (0.0, 1.0)],
    "expand": [((FLAT,), {"shape": (5, 24)}), (((X, (5, 1)),), {"shape": (5, 24)}), ((ONE,), {"shape": (5, 24)})],
    "tile": [((A,), {"repeats": (2, 3)})],
    "trilu": [((A,), {"upper": upper, "k": 1}) for upper in (False, True)],
    "dims": [((), {"values": (sym("T"),), "scalar": False})],
    "iota": [((), {"size": 9, "dtype": X})],
    "range": [((ONE, ONE, ONE), {"count": count}) for count in (9, sym("n"))],
    "attention": [((HEADS, HEADS, HEADS), CAUSAL)],
    "attention_stats": [((HEADS, HEADS, HEADS), CAUSAL)],
    "attention_grad": [((HEADS, HEADS, HEADS, HEADS, STATS, STATS, HEADS), CAUSAL)],
    "attention_mask_grad": [
        ((HEADS, HEADS, HEADS, HEADS, STATS, STATS, HEADS, (X, (1, 2, 16, 16))), {**CAUSAL, "causal": False})
    ],
    "constant": [((), {"value": X})],
    "weight": [((), {"name": "w", "dtype": X, "shape": (5, 24)})],
    "bind_size": [((ONE,), {"value": sym("n")})],
    "device_size": [((ONE,), {"value": sym("n"), "at_most": 9})],
}
ELSEWHERE = {
    "moe": "it is taken apart before lowering",
    "fused": "its nodes are those of other rows",
    "call": "it is taken apart before lowering",
    "host": "its nodes are those of a host step, tests/host",
    "all_to_all_v": "its lists lie on the host, tests/comm",
    "if": "it is control flow", "loop": "it is control flow", "scan": "it is control flow",
    "opaque": "nobody knows what it computes",
}  # fmt: skip
"""Ops without a row, and why."""


def module_of(name: str, instance: Instance, dtype: DType) -> Module | None:
    """One op on inputs of the varying type; None where the op does not accept it."""
    operands, given = instance
    attrs = {k: dtype if v == X and OPS[name].attrs[k].kind.startswith("dtype") else v for k, v in given.items()}
    if name == "constant":
        if dtype.kind == "opaque":
            return None
        attrs["value"] = ArrayData(np.ones((5, 24), dtype.carrier))
    module = Module()
    module.symbols |= {"n": (0, 120), "T": (1, 64)}
    graph = module.add(Graph("main"))
    values = []
    for i, operand in enumerate(operands):
        kind = None if operand is None else dtype if operand[0] == X else DTYPES[operand[0]]
        values.append(None if kind is None else graph.add_input(f"x{i}", TensorType(kind, operand[1])))  # type: ignore[index]
    try:
        node = graph.insert(make_node(name, values, attrs), None)
    except ValueError:
        return None
    graph.set_outputs(node.results, [f"y{i}" for i in range(len(node.results))])
    return module


def lowered(module: Module) -> Program:
    return lower_module(module, Capacities(), {})
