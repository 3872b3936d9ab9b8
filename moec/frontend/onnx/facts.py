"""What is known about dimensions from the bounds of their symbols: comparisons that hold for every allowed size."""

from __future__ import annotations

from moec.ir.symbol import DEFAULT_BOUND, Bounds, Dim, Expr, bounds, dmax, dmin, sym, symbols_of


class Facts:
    """The symbols of the module being imported, which of them are known only when it runs, and what follows from
    their bounds.

    A size that the model's inputs name is taken to be at least 1 here, as the exporters themselves take it: else
    ``x[0:1]`` would have min(1, T) rows and broadcast with nothing. The module's own bounds still allow 0.
    """

    def __init__(self, table: dict[str, Bounds]):
        self.table = table
        self.assumed: dict[str, Bounds] = {}
        self.runtime: set[str] = set()
        """Symbols that stand for a size which data decides."""
        self._next: dict[str, int] = {}

    def named(self, name: str) -> Expr:
        """The symbol of a size that an input names."""
        self.table.setdefault(name, DEFAULT_BOUND)
        self.assumed[name] = (1, DEFAULT_BOUND[1])
        return sym(name)

    def fresh(self, stem: str, upper: Dim | None = None) -> Expr:
        """A new symbol for a size that data decides, at most ``upper``."""
        number = self._next.get(stem, 0)
        while f"{stem}{number}" in self.table:
            number += 1
        self._next[stem] = number + 1
        name = f"{stem}{number}"
        high = DEFAULT_BOUND[1]
        if upper is not None:
            high = min(high, bounds(upper, self.assumed)[1])
        self.table[name] = self.assumed[name] = (0, max(0, high))
        self.runtime.add(name)
        return sym(name)

    def is_runtime(self, dim: Dim) -> bool:
        """Whether data decides part of ``dim``."""
        return isinstance(dim, Expr) and any(s in self.runtime for s in symbols_of(dim))

    def less_equal(self, a: Dim, b: Dim) -> bool | None:
        """Whether a <= b: True or False where that holds for every size, else None."""
        if isinstance(a, int) and isinstance(b, int):
            return a <= b
        low, high = bounds(b - a, self.assumed)
        return True if low >= 0 else False if high < 0 else None

    def equal(self, a: Dim, b: Dim) -> bool | None:
        """Whether a == b: True or False where that holds for every size, else None."""
        if a == b:
            return True
        if isinstance(a, int) and isinstance(b, int):
            return False
        low, high = bounds(b - a, self.assumed)
        return False if low > 0 or high < 0 else None

    def smaller(self, a: Dim, b: Dim) -> Dim:
        """min(a, b), written plainly where one of them always is."""
        if self.less_equal(a, b):
            return a
        return b if self.less_equal(b, a) else dmin(a, b)

    def larger(self, a: Dim, b: Dim) -> Dim:
        """max(a, b), written plainly where one of them always is."""
        if self.less_equal(a, b):
            return b
        return a if self.less_equal(b, a) else dmax(a, b)

    def clamp(self, index: Dim, size: Dim) -> Dim:
        """A slice bound as ONNX reads it: counted from the end where negative, then held within [0, size]."""
        if self.less_equal(0, index) is False:
            index = index + size
        if self.less_equal(0, index) is None and self.less_equal(index, size):
            return self.larger(0, index)
        if self.less_equal(0, index) is False:
            return 0
        return self.smaller(index, size)
