"""Gradients of every primitive op against central differences in f64, with number and with symbol sizes.

Which ops there are comes from the registry: one that declares a gradient and has no case here or in a named file fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moec.eval import run
from moec.ir.symbol import sym
from moec.ir.types import BF16, F16, F32, DType
from moec.ops import OPS
from moec.ops.tape import refusal
from tests.support.train import Case, check_case, joint, module_of

Array = np.ndarray
T, S = sym("T"), sym("S")

ELSEWHERE = {
    "test_attention_grads.py": ("attention_stats",),
    "test_moe_grads.py": (
        "cross_entropy",
        "gating",
        "grouped_matmul",
        "layer_norm",
        "permute",
        "rms_norm",
        "rope",
        "swiglu",
        "unpermute",
    ),
    "test_autodiff.py": ("save",),
    "test_balance.py": ("balance_loss",),
    "test_autodiff_ranks.py": (
        "all_gather",
        "all_reduce",
        "all_to_all",
        "all_to_all_v",
        "read_start",
        "read_wait",
        "reduce_scatter",
        "to_device",
        "to_host",
    ),
}
"""Ops whose gradients have tests of their own."""


def distinct(rng: np.random.Generator, *shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    """Numbers that lie apart from one another and from 0, so that no comparison turns within a step."""
    count = int(np.prod(shape))
    grid = low + (high - low) * (np.arange(count) + rng.uniform(0.3, 0.7, count)) / count
    grid = np.where(np.abs(grid) < 0.02, 0.05, grid)
    return rng.permutation(grid).reshape(shape)


POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal", "pow", "div", "mod")


def elementwise(name: str, rng: np.random.Generator) -> Iterator[Case]:
    """Every way to broadcast; operands from the domain of the op."""
    low = 0.3 if name in POSITIVE else -2.0
    attrs_of: dict[str, list[dict[str, Any]]] = {
        "gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
        "mod": [{"fmod": False}, {"fmod": True}],
        "cast": [{"to": F32}],
    }
    for attrs in attrs_of.get(name, [{}]):
        if name == "select":
            for shape in ((3, 5), (1, 5), (3, 1)):
                yield Case(name, [rng.random((3, 5)) < 0.5, distinct(rng, *shape), distinct(rng, 5)])
            yield Case(name, [rng.random((1, 7)) < 0.5, distinct(rng, 5, 1), distinct(rng, 5, 7)])
        elif len(OPS[name].signature.operands) == 1:
            yield Case(name, [distinct(rng, 3, 5, low=low)], attrs)
            yield Case(name, [distinct(rng, 1, low=low).reshape(())], attrs)
        else:
            for a, b in (
                ((3, 5), (3, 5)),
                ((5, 7), (7,)),
                ((5, 1), (1, 7)),
                ((), (5,)),
                ((2, 1, 5), (3, 1)),
                ((1,), ()),
            ):
                both = distinct(rng, int(np.prod(a) + np.prod(b)), low=low)
                x, y = both[: int(np.prod(a))].reshape(a), both[int(np.prod(a)) :].reshape(b)
                if name == "mod":
                    x = rng.integers(-3, 4, np.broadcast_shapes(a, b)) * y + y * rng.uniform(0.2, 0.8, ())
                yield Case(name, [x, y], attrs)


def kinks(name: str) -> Iterator[Case]:
    """Where central differences see the mean of both sides, and so do gradients: a tie of two, a base of 0."""
    x = np.array([[1.0, 2.0, 2.0], [0.5, -1.0, -1.0]])
    if name in ("minimum", "maximum"):
        yield Case(name, [x, np.array([1.0, 0.0, 2.0])])
    elif name in ("reduce_max", "reduce_min"):
        y = np.array([[1.0, 2.0, 2.0], [0.5, -1.0, -1.0], [-2.0, -2.0, 3.0]])
        yield Case(name, [y], {"axes": (1,), "keepdims": True})
    elif name == "scatter_elements":
        x, updates = np.array([1.0, 2.0, 0.5, 3.0]), np.array([2.0, -1.0, 0.7, 0.7, -4.0])
        yield Case(name, [x, np.array([1, 0, 2, 2, 3]), updates], {"axis": 0, "reduction": "max"})
        yield Case(name, [-x, np.array([1, 0, 2, 2, 3]), -updates], {"axis": 0, "reduction": "min"})
    elif name == "pow":
        yield Case(name, [np.array([0.0, 1.5, 0.0]), np.array([2.0, 2.5, 3.0])])
    elif name == "abs":
        yield Case(name, [np.array([0.0, -1.0, 2.0])])


def reductions(name: str, rng: np.random.Generator) -> Iterator[Case]:
    for axes in ((0,), (2,), (0, 2), (0, 1, 2), ()):
        for keep in (True, False):
            yield Case(name, [distinct(rng, 3, 5, 2, low=0.3)], {"axes": axes, "keepdims": keep})
    if name == "reduce_prod":
        x = distinct(rng, 4, 5)
        x[0, 1] = x[1, 2] = x[1, 4] = 0.0
        yield Case(name, [x], {"axes": (1,), "keepdims": False})


def along(name: str, rng: np.random.Generator) -> Iterator[Case]:
    for axis in (0, 1, 2):
        yield Case(name, [distinct(rng, 3, 5, 2)], {"axis": axis})


def cumsum(name: str, rng: np.random.Generator) -> Iterator[Case]:
    for axis in (0, 1):
        for exclusive in (False, True):
            for reverse in (False, True):
                attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                yield Case(name, [distinct(rng, 3, 5)], attrs)


def matmul(name: str, rng: np.random.Generator) -> Iterator[Case]:
    for lead_a, lead_b in (
        ((), ()),
        ((5,), (5,)),
        ((5,), ()),
        ((), (7,)),
        ((2, 1), (1, 3)),
        ((3,), (2, 1)),
        ((1,), ()),
    ):
        for ta in (False, True):
            for tb in (False, True):
                a = rng.standard_normal((*lead_a, *((2, 4) if ta else (4, 2))))
                b = rng.standard_normal((*lead_b, *((3, 2) if tb else (2, 3))))
                yield Case(name, [a, b], {"transpose_a": ta, "transpose_b": tb})
    yield Case(name, [rng.standard_normal((5, 3)), rng.standard_normal((3, 7))], {"to": F32})


def moved(name: str, rng: np.random.Generator) -> Iterator[Case]:
    x = distinct(rng, 3, 5, 2)
    if name == "reshape":
        yield Case(name, [x], {"shape": (3 * T, 2)})
        yield Case(name, [x], {"shape": (2, T, 3, 1)})
    elif name == "transpose":
        for perm in ((2, 0, 1), (1, 0, 2), (0, 1, 2)):
            yield Case(name, [x], {"perm": perm})
    elif name == "concat":
        for axis, sizes in ((0, (1, 2, 4)), (1, (2, 0, 1))):
            parts = [distinct(rng, *(n if i == axis else 5 for i in range(2))) for n in sizes]
            yield Case(name, parts, {"axis": axis})
        yield Case(name, [x, distinct(rng, 3, 7, 2)], {"axis": 1})
    elif name == "slice":
        for start, stop, step in ((0, 5, 1), (1, 4, 1), (0, 5, 2), (1, 5, 3), (2, 2, 1), (2, 2, 2), (0, 4, 4)):
            yield Case(name, [x], {"axis": 1, "start": start, "stop": T if stop == 5 else stop, "step": step})
        yield Case(name, [distinct(rng, 9)], {"axis": 0, "start": 2, "stop": 8, "step": 3})
    elif name == "pad":
        yield Case(name, [x], {"before": (0, 1, 2), "after": (1, 0, 3), "value": 1.5})
        yield Case(name, [x], {"before": (0, 0, 0), "after": (0, 0, 0), "value": 0.0})
    elif name == "expand":
        for shape, target in (
            ((5, 1), (5, 3)),
            ((5,), (7, 5)),
            ((), (2, 5)),
            ((1, 5, 1), (3, 7, 5, 2)),
            ((3, 2), (3, 2)),
        ):
            dims = tuple({5: T, 7: S}.get(n, n) for n in target)
            yield Case(name, [distinct(rng, *shape) if shape else np.array(0.7)], {"shape": dims})
    elif name == "tile":
        yield Case(name, [x], {"repeats": (2, 1, 3)})
        yield Case(name, [distinct(rng, 3)], {"repeats": (T,)})
    else:
        for upper in (False, True):
            for k in (-1, 0, 2):
                yield Case(name, [x], {"upper": upper, "k": k})


def indexed(name: str, rng: np.random.Generator) -> Iterator[Case]:
    x = distinct(rng, 4, 5, 3)
    if name == "gather":
        for axis in (0, 1, 2):
            for shape in ((), (6,), (2, 7)):
                yield Case(name, [x, rng.integers(-3, 3, shape)], {"axis": axis})
    elif name == "gather_elements":
        for axis in (0, 1, 2):
            yield Case(name, [x, rng.integers(-3, 3, (2, 5, 2))], {"axis": axis})
    elif name == "gather_nd":
        for batch, depth, lead in (
            (0, 1, (6,)),
            (0, 2, (2, 7)),
            (0, 3, (2,)),
            (1, 1, (4, 2)),
            (1, 2, (4,)),
            (2, 1, (4, 5, 2)),
        ):
            yield Case(name, [x, rng.integers(-3, 3, (*lead, depth))], {"batch_dims": batch})
    elif name == "topk":
        for axis, largest, k in ((0, True, 2), (1, False, 3), (2, True, 3), (1, True, 0)):
            yield Case(name, [x], {"k": k, "axis": axis, "largest": largest, "sorted": True})
    else:
        for reduction in ("none", "add", "max", "min"):
            both = distinct(rng, 120)
            if name == "scatter_elements":
                for axis in (0, 1, 2):
                    yield Case(
                        name,
                        [both[:60].reshape(4, 5, 3), rng.integers(-3, 3, (3, 4, 2)), both[60:84].reshape(3, 4, 2)],
                        {"axis": axis, "reduction": reduction},
                    )
            else:
                for depth, lead, rest in ((1, (2,), (5, 3)), (2, (4,), (3,)), (3, (7, 2), ())):
                    count = int(np.prod((*lead, *rest)))
                    yield Case(
                        name,
                        [
                            both[:60].reshape(4, 5, 3),
                            rng.integers(-3, 3, (*lead, depth)),
                            both[60 : 60 + count].reshape(*lead, *rest),
                        ],
                        {"reduction": reduction},
                    )


def ranges(name: str, rng: np.random.Generator) -> Iterator[Case]:
    start, limit, delta = (np.array(v) for v in (0.3, 2.9, 0.55))
    yield Case(name, [start, limit, delta], {"count": T}, skip=(1,))


def segments(name: str, rng: np.random.Generator) -> Iterator[Case]:
    for counts in ([2, 0, 3], [0, 5], [5], [0, 1, 4, 0]):
        yield Case(name, [distinct(rng, 5, 7), np.array(counts)])


EPS = {"bf16": 2.0**-8, "f16": 2.0**-11}
"""Half a unit in the last place, relative: what one rounding may change."""

SMALLEST = 2.0**-4
"""Gradients below this are measured as if they were as large."""

ROUNDINGS = {
    **dict.fromkeys(("div", "exp", "sqrt", "sigmoid"), 2),
    **dict.fromkeys(("pow", "reciprocal"), 3),
    "rsqrt": 4,
    "tanh": 27,
    **dict.fromkeys(("softmax", "log_softmax"), 4),
    "matmul": 2,
}
"""More than one where the gradient reads the op's own result, which forward rounded: once, twice in y^2, three times in
y^3, 2 y^2 / (1 - y^2) times for tanh (26 at |x| = 2); of a softmax's dy and its mean, before they cancel. An
f32 gradient of a product of 16-bit operands is rounded to multiply with those.
"""


Cases = Callable[[str, np.random.Generator], Iterator[Case]]
CASES: dict[str, Cases] = {
    **{n: elementwise for n, d in OPS.items() if "elementwise" in d.traits and d.grad is not None},
    **dict.fromkeys(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"), reductions),
    **dict.fromkeys(("softmax", "log_softmax"), along),
    "cumsum": cumsum,
    "matmul": matmul,
    **dict.fromkeys(("reshape", "transpose", "concat", "slice", "pad", "expand", "tile", "trilu"), moved),
    **dict.fromkeys(("gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd", "topk"), indexed),
    "range": ranges,
    "segment_sum": segments,
}


def test_every_op_has_a_gradient_or_says_why_not() -> None:
    silent = [n for n, d in OPS.items() if d.grad is None and not d.nondiff]
    both = [n for n, d in OPS.items() if d.grad is not None and d.nondiff]
    assert not silent and not both


def test_every_gradient_is_compared_with_differences() -> None:
    with_gradient = {n for n, d in OPS.items() if d.grad is not None and not refusal(d.grad)}
    named = {n for names in ELSEWHERE.values() for n in names}
    assert sorted(with_gradient - named) == sorted(CASES)
    here = Path(__file__).parent
    for file, names in ELSEWHERE.items():
        text = (here / file).read_text()
        assert [n for n in names if f'"{n}"' not in text] == [], file


@pytest.mark.parametrize("symbolic", [False, True], ids=["numbers", "symbols"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_differences(name: str, symbolic: bool) -> None:
    rng = np.random.default_rng(len(name))
    for i, case in enumerate((*CASES[name](name, rng), *kinks(name))):
        check_case(case, symbolic, seed=i)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("cast", "range")])
def test_16_bit_gradients_round_once(name: str, dtype: DType) -> None:
    """Each differs from the f64 gradient of the same operands by the rounding of its largest terms, not by more."""
    rng = np.random.default_rng(len(name))
    for case in CASES[name](name, rng):
        operands = [None if a is None else a.astype(dtype.carrier) if a.dtype.kind == "f" else a for a in case.operands]
        made = joint(module_of(case, floats=dtype))
        inputs = {f"x{i}": a for i, a in enumerate(operands) if a is not None}
        hooks = [v for v in made.main.inputs if v.name not in inputs]
        inputs |= {v.name: rng.uniform(0.5, 1.5, v.type.dims).astype(dtype.carrier) for v in hooks}
        low, high = (run(made, inputs, fp64=fp64) for fp64 in (False, True))
        for key in high:
            if key.startswith("d_") and high[key].size:
                assert low[key].dtype == dtype.carrier
                scale = np.abs(high[key]) if "elementwise" in OPS[name].traits else np.abs(high[key]).max()
                off = np.abs(low[key].astype(float) - high[key]) / np.maximum(scale, SMALLEST)
                assert off.max() <= ROUNDINGS.get(name, 1) * EPS[dtype.name], (key, case.attrs)
