"""Tensors as operator tables state them: a shape, an element type, a storage format."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from moec.ir.types import DTYPES

VENDOR_DTYPES = {
    "float": "f32", "float32": "f32", "fp32": "f32", "float16": "f16", "half": "f16", "fp16": "f16", "bf16": "bf16",
    "bfloat16": "bf16", "double": "f64", "float64": "f64", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "int4": "i4", "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "uint1": "u8",
    "bool": "bool", "complex64": "c64", "complex128": "c128", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2",
    "hifloat8": "f8e4m3fn", "string": "u8", "int": "i32", "long": "i64", "hf32": "f32",
}  # fmt: skip
"""The vendor's dtype names (after dropping ``DT_`` and case) as moec's."""

ABSENT = ("undefined", "resource", "n/a", "null", "none", "")
"""Dtype names of operands that are not there."""


@dataclass(frozen=True)
class Tensor:
    """``shape`` as stored (a fractal format has its two inner tile dimensions), ``dtype`` by moec's name."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    format: str = "ND"

    @property
    def numel(self) -> int:
        """Number of elements; 1 of a scalar."""
        return prod(self.shape)

    @property
    def itemsize(self) -> float:
        """Bytes an element; 0.5 of 4-bit types."""
        return DTYPES[self.dtype].bits / 8

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return int(self.numel * self.itemsize)

    @property
    def last(self) -> int:
        """Size of the last dimension; 1 of a scalar."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        """Elements over the last dimension."""
        return self.numel // self.last if self.last else 0

    @property
    def is_float16(self) -> bool:
        """Whether it holds 16-bit floats."""
        return self.dtype in ("f16", "bf16")


PREFIXES = re.compile(r"^(torch\.|np\.|numpy\.|acl_|dt_|tensor\()+")
"""What frameworks put before a dtype's name."""

WIDTHS = {"64": "i64", "32": "f32", "16": "f16", "8": "i8", "4": "i4"}
"""A dtype for each number of bits."""


def width_of(name: str) -> str | None:
    """A dtype as wide as the number that an unknown name ends in says; None where it says none."""
    bits = re.search(r"(?<![0-9])(64|32|16|8|4)(?:_t)?$", name.strip().lower())
    return WIDTHS[bits.group(1)] if bits else None


def dtype_of(name: str) -> str | None:
    """moec's name of a vendor's dtype; None for an operand that is absent. ValueError for an unknown name."""
    key = PREFIXES.sub("", name.strip().lower()).rstrip(")")
    if key in ABSENT:
        return None
    found = VENDOR_DTYPES.get(key) or (key if key in DTYPES else None)
    if found is None:
        raise ValueError(f"unknown dtype '{name.strip()}'")
    return found
