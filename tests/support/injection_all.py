"""Every case of fault injection."""

from __future__ import annotations

from injection_cube import CUBE
from injection_vector import VECTOR

CASES = [*VECTOR, *CUBE]
