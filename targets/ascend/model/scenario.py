"""Device data that a kernel's scalars are read from: what the simulation needs to know of values.

Expert counts decide loop bounds; where the caller gives none they are balanced: every expert gets the same number of
rows, the first ones one more where that does not come out even. Rows that are gathered go through their tensor once an
expert. Anything else that is read and not given is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moec.codegen.kernel_ir import GmTensor, Kernel
from moec.codegen.scalar import Env, evaluate

COUNTS_ROLE, GATHERED_ROLE, SOURCE_ROLE = "counts", "gathered", "source"


def balanced(rows: int, experts: int) -> tuple[int, ...]:
    """Rows per expert when ``rows`` are spread as evenly as they go, larger shares first."""
    share, extra = divmod(rows, experts) if experts else (0, 0)
    return tuple(share + (i < extra) for i in range(experts))


def spread(counts: Sequence[int], rows: int) -> tuple[int, ...]:
    """For each row of each expert which of ``rows`` it is: an expert's go through all of them, evenly."""
    return tuple(i * rows // count for count in counts for i in range(count))


@dataclass(frozen=True)
class Scenario:
    """``data``: values by parameter name. ``rows``: routed rows in all, to balance counts that are not given; where
    it is None too, the leading dim of the kernel's first 2-D activation, or of the indices that it makes."""

    data: Mapping[str, Sequence[int]] = field(default_factory=dict)
    rows: int | None = None

    def tables(self, kernel: Kernel, args: Mapping[str, int]) -> dict[str, Sequence[int]]:
        """The values of each parameter that the kernel may read scalars from."""
        tables: dict[str, Sequence[int]] = {}
        for p in kernel.params:
            if p.name in self.data:
                tables[p.name] = self.data[p.name]
            elif p.role == COUNTS_ROLE and p.direction == "in":
                tables[p.name] = balanced(self._rows(kernel, args), shape_of(p, args)[-1])
        counts = next((tables[p.name] for p in kernel.params if p.role == COUNTS_ROLE and p.name in tables), ())
        rows = next((shape_of(p, args)[0] for p in kernel.params if p.role == GATHERED_ROLE), 0)
        for p in kernel.params:
            if p.role == SOURCE_ROLE and p.name not in tables:
                tables[p.name] = spread(counts, rows)
        return tables

    def _rows(self, kernel: Kernel, args: Mapping[str, int]) -> int:
        if self.rows is not None:
            return self.rows
        for p in kernel.params:
            if p.role == "activation" and len(p.shape) == 2:
                return shape_of(p, args)[0]
        return next((shape_of(p, args)[0] for p in kernel.params if (p.role, p.direction) == ("index", "out")), 0)


def shape_of(p: GmTensor, args: Mapping[str, int]) -> tuple[int, ...]:
    """The numbers of a parameter's shape."""
    env = Env({}, args, {})
    return tuple(int(evaluate(d, env)) for d in p.shape)
