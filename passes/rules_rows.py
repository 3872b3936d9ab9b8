"""Rules that spell row-wise ops in what a fused vector body may hold: elementwise ops and row reductions, in f32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moec.ir.types import F32
from moec.ops.rowspace import REDUCTIONS
from moec.rewrite.rule import Rule, near, rule
from moec.rewrite.term import T, Term, require

WHY = "that is its definition, in f32, rounded once"


def _wide(x: Term) -> Term:
    return x if x.dtype is F32 else T.cast(x, to=F32)


def _back(y: Term, x: Term) -> Term:
    return y if x.dtype is F32 else T.cast(y, to=x.dtype)


def _computable(x: Term) -> None:
    require(x.dtype.name in ("f32", "f16", "bf16"), f"{x.dtype} is not computed by vector kernels", x)


def _last(op: str, x: Term, axis: int) -> None:
    require(axis == x.rank - 1, f"{op} is along dimension {axis} of {x.rank}, not the last", x)


@rule(
    "rows-softmax",
    exactness="reassociated",
    why=WHY,
    cases=["x: [3, 8]; axis = 1", "x: [2, 3, 8]; axis = 2", "x: [3, 8] in -300..300; axis = 1"],
    near=[near("not the last", "x: [3, 8]; axis = 0"), near("not computed", "x: f64[3, 8]; axis = 1")],
)
def rows_softmax(x: Term, *, axis: int) -> Iterator[Any]:
    yield T.softmax(x, axis=axis)
    _last("softmax", x, axis)
    _computable(x)
    shifted = _wide(x) - T.reduce_max(_wide(x), axes=(axis,), keepdims=True)
    e = T.exp(shifted)
    yield _back(e / T.reduce_sum(e, axes=(axis,), keepdims=True), x)


@rule(
    "rows-log-softmax",
    exactness="reassociated",
    why=WHY,
    cases=["x: [3, 8]; axis = 1", "x: [3, 8] in -300..300; axis = 1"],
    near=[near("not the last", "x: [3, 8]; axis = 0"), near("not computed", "x: f64[3, 8]; axis = 1")],
)
def rows_log_softmax(x: Term, *, axis: int) -> Iterator[Any]:
    yield T.log_softmax(x, axis=axis)
    _last("log_softmax", x, axis)
    _computable(x)
    shifted = _wide(x) - T.reduce_max(_wide(x), axes=(axis,), keepdims=True)
    yield _back(shifted - T.log(T.reduce_sum(T.exp(shifted), axes=(axis,), keepdims=True)), x)


def _rms_norm(weighted: bool) -> Rule:
    @rule(
        "rows-rms-norm" + ("-weight" if weighted else ""),
        exactness="reassociated",
        why=WHY,
        operands={"x": "[*B, D]", **({"weight": "[D]"} if weighted else {})},
        cases=["x: [3, 8]; " + ("weight: [8]; " if weighted else "") + "eps = 0.0009765625"],
        near=[near("not computed", "x: f64[3, 8]; " + ("weight: f64[8]; " if weighted else "") + "eps = 0.0009765625")],
    )
    def rows_rms_norm(x: Term, *weight: Term, eps: float) -> Iterator[Any]:
        yield T.rms_norm(x, weight[0] if weight else None, eps=eps)
        _computable(x)
        wide = _wide(x)
        y = wide * T.rsqrt(T.reduce_mean(wide * wide, axes=(x.rank - 1,), keepdims=True) + eps)
        yield _back(y * _wide(weight[0]) if weight else y, x)

    return rows_rms_norm


def _layer_norm(operands: Sequence[str]) -> Rule:
    sizes = "".join(f"{name}: [8]; " for name in operands)

    @rule(
        "-".join(["rows-layer-norm", *operands]),
        exactness="reassociated",
        why=WHY,
        operands={"x": "[*B, D]", **dict.fromkeys(operands, "[D]")},
        cases=[f"x: [3, 8]; {sizes}eps = 0.0009765625; axis = 1"],
        near=[
            near("not the last", f"x: [8, 8]; {sizes}eps = 0.0009765625; axis = 0"),
            near("not computed", f"x: f64[3, 8]; {sizes.replace(': [', ': f64[')}eps = 0.0009765625; axis = 1"),
        ],
    )
    def rows_layer_norm(x: Term, *rest: Term, eps: float, axis: int) -> Iterator[Any]:
        given = dict(zip(operands, rest, strict=True))
        yield T.layer_norm(x, given.get("weight"), given.get("bias"), eps=eps, axis=axis)
        _last("layer_norm", x, axis)
        _computable(x)
        wide = _wide(x)
        centred = wide - T.reduce_mean(wide, axes=(axis,), keepdims=True)
        y = centred * T.rsqrt(T.reduce_mean(centred * centred, axes=(axis,), keepdims=True) + eps)
        y = y * _wide(given["weight"]) if "weight" in given else y
        yield _back(y + _wide(given["bias"]) if "bias" in given else y, x)

    return rows_layer_norm


def _keep(op: str) -> Rule:
    @rule(
        f"rows-{op}",
        exactness="exact",
        why="a reduction that keeps its dimension as 1, and a view without it",
        cases=["x: [3, 8]; axes = [1]"],
        near=[near("not the last", "x: [3, 8]; axes = [0]"), near("not computed", "x: i64[3, 8]; axes = [1]")],
    )
    def keep(x: Term, *, axes: Sequence[int]) -> Iterator[Any]:
        reduced = getattr(T, op)(x, axes=axes, keepdims=False)
        yield reduced
        require(tuple(axes) == (x.rank - 1,), f"{op} is over {list(axes)} of {x.rank}, not the last", x)
        _computable(x)
        yield T.reshape(getattr(T, op)(x, axes=axes, keepdims=True), shape=reduced.shape)

    return keep


NORM_ROW_RULES = [
    *(_rms_norm(weighted) for weighted in (False, True)),
    *(_layer_norm(operands) for operands in ((), ("weight",), ("weight", "bias"), ("bias",))),
]
"""The rules that spell norms."""

ROW_RULES = [
    rows_softmax,
    rows_log_softmax,
    *NORM_ROW_RULES,
    *(_keep(op) for op in REDUCTIONS),
]
