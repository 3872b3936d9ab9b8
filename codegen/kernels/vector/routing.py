"""The shape of a gating kernel: routing attributes, and how experts lie in the lanes of the vector unit."""

from __future__ import annotations

from dataclasses import dataclass

from moec.codegen.kernels.vector.tile import BLOCK, LANES
from moec.codegen.kernels.vector.topk import RUN


@dataclass(frozen=True)
class Gating:
    """The attributes of the op ``gating``, with the sizes and dtypes of its operands."""

    experts: int
    top_k: int
    score: str
    score_order: str
    groups: int
    group_top_k: int
    group_score: str
    group_mask: str
    renormalize: bool
    renormalize_eps: float
    scale: float
    score_dtype: str
    weights_dtype: str
    dtype: str
    bias_dtype: str | None
    most_tokens: int = 2**31 - 1

    @property
    def group_size(self) -> int:
        return self.experts // self.groups

    @property
    def group_lanes(self) -> int:
        """Lanes of a group."""
        return -(-self.group_size // RUN) * RUN

    @property
    def lanes(self) -> int:
        """Lanes of a token."""
        return self.group_lanes * self.groups

    @property
    def columns(self) -> int:
        """Columns of a token's chosen experts while they are worked on: a power of two, at least a block."""
        return max(BLOCK, 1 << (self.top_k - 1).bit_length())

    @property
    def even(self) -> int:
        """Tokens whose lanes make a whole number of 64: tiles work on a multiple of it."""
        return 2 if self.lanes % LANES else 1

    @property
    def padded(self) -> bool:
        return self.group_lanes != self.group_size
