"""Shape rules shared by op declarations: broadcasting, axes, and dtype agreement."""

from __future__ import annotations

from typing import Any

from moec.ir.symbol import Dim, Shape, dmax
from moec.ir.types import BOOL, DType, TensorType
from moec.ops.registry import Types


def broadcast(*shapes: Shape) -> Shape:
    """The numpy broadcast of shapes; ValueError where two numbers clash. Two different symbols give their maximum."""
    rank = max(map(len, shapes))
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for i, d in enumerate(shape, rank - len(shape)):
            result[i] = _broadcast_dim(result[i], d, shapes)
    return tuple(result)


def _broadcast_dim(a: Dim, b: Dim, shapes: tuple[Shape, ...]) -> Dim:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        listed = " and ".join("[" + ", ".join(map(str, s)) + "]" for s in shapes)
        raise ValueError(f"shapes {listed} do not broadcast: {a} against {b}")
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) else dmax(a, b)


def known(types: Types) -> list[TensorType]:
    """The operand types without the absent ones."""
    return [t for t in types if t is not None]


def broadcast_operands(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
    """Shape rule of broadcasting elementwise ops; an operand of unknown rank leaves the result unknown."""
    shapes = [t.shape for t in known(types)]
    return [None] if None in shapes else [broadcast(*[s for s in shapes if s is not None])]


def same_shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
    """Shape rule: the first operand's."""
    return [known(types)[0].shape]


def common_dtype(types: Types, attrs: dict[str, Any]) -> DType:
    """Dtype rule: all operands have the same dtype, and so has the result."""
    present = known(types)
    if any(t.dtype is not present[0].dtype for t in present):
        raise ValueError(f"operands have different dtypes: {', '.join(t.dtype.name for t in present)}; cast one")
    return present[0].dtype


def compared_dtype(types: Types, attrs: dict[str, Any]) -> DType:
    """Dtype rule of comparisons: operands agree, the result is bool."""
    common_dtype(types, attrs)
    return BOOL


def boolean_dtype(types: Types, attrs: dict[str, Any]) -> DType:
    """Dtype rule of logic: everything is bool."""
    if any(t.dtype is not BOOL for t in known(types)):
        raise ValueError(f"operands must be bool, got {', '.join(t.dtype.name for t in known(types))}")
    return BOOL


def check_axis(axis: int, rank: int, name: str = "axis") -> int:
    """``axis`` if 0 <= axis < rank, ValueError otherwise."""
    if not 0 <= axis < rank:
        raise ValueError(f"{name} {axis} is outside rank {rank}")
    return axis


def shape_along_axis(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
    """Shape rule: the first operand's, along one of whose dimensions (``axis``) the op works."""
    first = known(types)[0]
    if first.shape is not None:
        check_axis(attrs["axis"], len(first.shape))
    return same_shape(types, attrs)


def replaced(shape: Shape, axis: int, dim: Dim) -> Shape:
    """``shape`` with one dimension replaced."""
    return (*shape[:axis], dim, *shape[axis + 1 :])
