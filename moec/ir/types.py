"""Element types and tensor types. The table is open: every ONNX dtype has a name, a size and a numpy carrier.

A *carrier* is the numpy dtype that holds the values on the host; 8- and 16-bit floats and 4-bit integers use ml_dtypes.
Which of these a target can compute is the target's to say.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from moec.diagnostics import suggest
from moec.ir.symbol import Dim, Shape


@dataclass(frozen=True, eq=False)
class DType:
    """An element type: ``name`` in texts, ``bits`` an element, numpy ``carrier``, ``onnx`` TensorProto.DataType number.

    ``kind``: ``float``, ``int``, ``uint``, ``bool``, ``complex`` or ``opaque`` (no arithmetic).
    """

    name: str
    bits: int
    carrier: np.dtype
    onnx: int
    kind: str

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def bytes(self) -> int:
        """Bytes an element takes on its own; packed 4-bit types count 1."""
        return (self.bits + 7) // 8

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DType({self.name})"


def _table() -> dict[str, DType]:
    rows: list[tuple[str, int, npt.DTypeLike, int, str]] = [
        ("f64", 64, np.float64, 11, "float"),
        ("f32", 32, np.float32, 1, "float"),
        ("f16", 16, np.float16, 10, "float"),
        ("bf16", 16, ml_dtypes.bfloat16, 16, "float"),
        ("f8e4m3fn", 8, ml_dtypes.float8_e4m3fn, 17, "float"),
        ("f8e4m3fnuz", 8, ml_dtypes.float8_e4m3fnuz, 18, "float"),
        ("f8e5m2", 8, ml_dtypes.float8_e5m2, 19, "float"),
        ("f8e5m2fnuz", 8, ml_dtypes.float8_e5m2fnuz, 20, "float"),
        ("f8e8m0", 8, ml_dtypes.float8_e8m0fnu, 24, "float"),
        ("f4e2m1", 4, ml_dtypes.float4_e2m1fn, 23, "float"),
        ("i64", 64, np.int64, 7, "int"),
        ("i32", 32, np.int32, 6, "int"),
        ("i16", 16, np.int16, 5, "int"),
        ("i8", 8, np.int8, 3, "int"),
        ("i4", 4, ml_dtypes.int4, 22, "int"),
        ("i2", 2, ml_dtypes.int2, 26, "int"),
        ("u64", 64, np.uint64, 13, "uint"),
        ("u32", 32, np.uint32, 12, "uint"),
        ("u16", 16, np.uint16, 4, "uint"),
        ("u8", 8, np.uint8, 2, "uint"),
        ("u4", 4, ml_dtypes.uint4, 21, "uint"),
        ("u2", 2, ml_dtypes.uint2, 25, "uint"),
        ("bool", 8, np.bool_, 9, "bool"),
        ("c64", 64, np.complex64, 14, "complex"),
        ("c128", 128, np.complex128, 15, "complex"),
        ("string", 0, np.object_, 8, "opaque"),
        ("seq", 0, np.object_, 0, "opaque"),
    ]
    return {name: DType(name, bits, np.dtype(carrier), onnx, kind) for name, bits, carrier, onnx, kind in rows}


DTYPES: dict[str, DType] = _table()
F64, F32, F16, BF16 = (DTYPES[n] for n in ("f64", "f32", "f16", "bf16"))
I64, I32, U8, U32, BOOL = (DTYPES[n] for n in ("i64", "i32", "u8", "u32", "bool"))
BY_ONNX: dict[int, DType] = {d.onnx: d for d in DTYPES.values() if d.onnx}
_BY_CARRIER: dict[np.dtype, DType] = {d.carrier: d for d in DTYPES.values() if d.kind != "opaque"}


def dtype(name: str) -> DType:
    """The dtype called ``name``; ValueError with a suggestion for an unknown one."""
    found = DTYPES.get(name)
    if found is None:
        raise ValueError(f"unknown dtype '{name}'; {suggest(name, DTYPES) or 'known: ' + ', '.join(DTYPES)}")
    return found


def dtype_of(array: np.ndarray) -> DType:
    """The dtype whose carrier ``array`` has; ValueError where there is none."""
    found = _BY_CARRIER.get(array.dtype)
    if found is None:
        raise ValueError(f"no dtype for numpy {array.dtype}")
    return found


class UnknownRank(ValueError):
    """A shape was wanted of a tensor whose rank nobody knows before it runs."""


class TensorType:
    """A tensor's dtype and shape. ``shape`` is None where not even the rank is known. Immutable, compared by value."""

    __slots__ = ("dtype", "shape", "_text")

    def __init__(self, dtype: DType, shape: Shape | None):
        self.dtype = dtype
        self.shape = shape
        self._text = ""

    @property
    def rank(self) -> int:
        """Number of dimensions; UnknownRank where it is not known."""
        return len(self.dims)

    @property
    def dims(self) -> Shape:
        """The shape, known by contract of the caller; UnknownRank where it is not."""
        if self.shape is None:
            raise UnknownRank(f"the rank of {self} is unknown")
        return self.shape

    def numel(self) -> Dim:
        """Number of elements, as a dimension."""
        total: Dim = 1
        for d in self.dims:
            total = total * d
        return total

    def with_shape(self, shape: Shape | None) -> TensorType:
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and self.dtype is other.dtype and self.shape == other.shape

    def __hash__(self) -> int:
        return hash((self.dtype.name, self.shape))

    def __str__(self) -> str:
        if not self._text:
            shape = "*" if self.shape is None else ", ".join(map(str, self.shape))
            self._text = f"{self.dtype.name}[{shape}]"
        return self._text

    __repr__ = __str__
