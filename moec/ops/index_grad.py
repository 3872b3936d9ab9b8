"""Gradients of gathers, scatters and top-k. Indices are not differentiated; backward reads the saved ones."""

from __future__ import annotations

from collections.abc import Callable

from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape
from moec.ir.types import I64
from moec.ops.tape import Gradients, NoGradient, Tape


def _dy(dys: tuple[Value | None, ...]) -> Value:
    dy = dys[0]
    assert dy is not None
    return dy


def _empty(t: Tape, x: Value, like: Value) -> Value:
    """Zeros of x's shape and ``like``'s dtype."""
    return t.zeros(x.type.with_dtype(like.type.dtype))


def gather(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """Rows of dy added up where they were taken from; where each was taken once, by an order that sorts, they are
    gathered back by its inverse: forward's, or one that is made.
    """
    x, indices, axis, dy = node.operand(0), node.operand(1), node.attrs["axis"], _dy(dys)
    whole = axis == 0 and indices.type.dims == x.type.dims[:1]
    back_again = _inverse(indices) if whole else None
    if whole and back_again is None and indices.producer is not None and indices.producer.op == "argsort":
        back_again = t.argsort(indices, axis=0, descending=False)
    if back_again is not None:
        return [t.narrow(t.gather(dy, back_again, axis=0), 0), None]
    rank, taken = x.type.rank, indices.type.rank
    front = (*range(axis, axis + taken), *range(axis), *range(axis + taken, rank - 1 + taken))
    rows = dy if axis == 0 else t.transpose(dy, perm=front)
    back = (*range(1, axis + 1), 0, *range(axis + 1, rank))
    shape = (x.type.dims[axis], *x.type.dims[:axis], *x.type.dims[axis + 1 :])
    tuples = t.reshape(indices, shape=(*indices.type.dims, 1))
    total = t.scatter_nd(t.zeros(rows.type.with_shape(shape)), tuples, rows, reduction="add")
    return [t.narrow(total if axis == 0 else t.transpose(total, perm=back), 0), None]


def _inverse(order: Value) -> Value | None:
    """The inverse of an order of all rows where forward has both: the argsort of an argsort, or
    scatter_elements(0..n-1, argsort, 0..n-1).
    """
    made = order.producer
    if made is None or order.type.rank != 1 or made.op not in ("argsort", "scatter_elements"):
        return None
    if made.op == "argsort":
        found = next((u.result for u in order.uses if _inverts(u, order)), None)
        if found is not None:
            return found
    sort = made.operand(0 if made.op == "argsort" else 1).producer
    if sort is not None and sort.op == "argsort" and _inverts(made, sort.result):
        return sort.result
    return None


def _inverts(scatter: Node, order: Value) -> bool:
    """Whether a node gives the inverse of ``order``, which is all of 0..n-1: its argsort, or 0..n-1 written where it
    says.
    """
    if scatter.op == "argsort":
        return scatter.operand(0) is order and not scatter.attrs["descending"]
    if scatter.op != "scatter_elements":
        return False
    into, at, numbers = (scatter.operand(i) for i in range(3))
    plain = numbers.producer is not None and numbers.producer.op == "iota" and scatter.attrs["reduction"] == "none"
    return plain and at is order and into.type.dims == at.type.dims == numbers.type.dims


def gather_elements(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """Elements of dy added up where they were taken from."""
    x, indices, dy = node.operand(0), node.operand(1), _dy(dys)
    total = t.scatter_elements(_empty(t, x, dy), indices, dy, axis=node.attrs["axis"], reduction="add")
    return [t.narrow(total, 0), None]


def gather_nd(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """Slices of dy added up where they were taken from."""
    x, dy = node.operand(0), _dy(dys)
    tuples = _with_batch(t, node.operand(1), node.attrs["batch_dims"])
    return [t.narrow(t.scatter_nd(_empty(t, x, dy), tuples, dy, reduction="add"), 0), None]


def _with_batch(t: Tape, indices: Value, batch_dims: int) -> Value:
    """Index tuples that begin with the position along the batch dimensions."""
    lead = indices.type.dims[:-1]
    parts = []
    for i in range(batch_dims):
        along: Shape = tuple(lead[i] if j == i else 1 for j in range(len(lead)))
        places = t.reshape(t.iota(size=lead[i], dtype=indices.type.dtype), shape=(*along, 1))
        parts.append(t.expanded(places, (*lead, 1)))
    made: Value = t.concat(*parts, indices, axis=len(lead)) if parts else indices
    return made


def scatter_elements(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """See ``_Scatter``."""
    axis = node.attrs["axis"]

    def put(into: Value, at: Value, updates: Value, reduction: str) -> Value:
        made: Value = t.scatter_elements(into, at, updates, axis=axis, reduction=reduction)
        return made

    def take(source: Value, at: Value) -> Value:
        made: Value = t.gather_elements(source, at, axis=axis)
        return made

    return _Scatter(t, node, _dy(dys), put, take).gradients()


def scatter_nd(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """See ``_Scatter``."""

    def put(into: Value, at: Value, updates: Value, reduction: str) -> Value:
        made: Value = t.scatter_nd(into, at, updates, reduction=reduction)
        return made

    def take(source: Value, at: Value) -> Value:
        made: Value = t.gather_nd(source, at, batch_dims=0)
        return made

    return _Scatter(t, node, _dy(dys), put, take).gradients()


Put = Callable[[Value, Value, Value, str], Value]
Take = Callable[[Value, Value], Value]


class _Scatter:
    """The gradients of x and updates under either way of indexing: ``put`` scatters and ``take`` gathers likewise."""

    def __init__(self, t: Tape, node: Node, dy: Value, put: Put, take: Take):
        self.t, self.node, self.dy = t, node, dy
        self.put, self.take = put, take
        self.x, self.indices, self.updates = (node.operand(i) for i in range(3))

    def gradients(self) -> Gradients:
        reduction = self.node.attrs["reduction"]
        if reduction == "none":
            return self.replaced()
        if reduction == "add":
            return self.answer(self.dy, self.taken(self.dy))
        if reduction == "mul":
            raise NoGradient("of products at indices that may repeat")
        return self.extreme()

    def answer(self, dx: Value | None, dupdates: Value | None) -> Gradients:
        dx = self.t.narrow(dx, 0) if dx is not None and self.t.wanted(0) else None
        dupdates = self.t.narrow(dupdates, 2) if dupdates is not None and self.t.wanted(2) else None
        return [dx, None, dupdates]

    def taken(self, source: Value) -> Value:
        made: Value = self.take(source, self.indices)
        return made

    def scattered(self, into: Value, updates: Value, reduction: str) -> Value:
        made: Value = self.put(into, self.indices, updates, reduction)
        return made

    def replaced(self) -> Gradients:
        """dy where nothing was written; at the indices, dy for the update that was written last."""
        t, dy, updates = self.t, self.dy, self.updates
        dx = self.scattered(dy, _empty(t, updates, dy), "none") if t.wanted(0) else None
        if not t.wanted(2):
            return self.answer(dx, None)
        count = updates.type.numel()
        names = t.reshaped(t.iota(size=count, dtype=I64), updates.type.dims)
        last = self.taken(self.scattered(t.zeros(self.x.type.with_dtype(I64)), names, "none"))
        zero = t.constant_of(0.0, dy.type.dtype)
        return self.answer(dx, t.select(t.eq(names, last), self.taken(dy), zero))

    def extreme(self) -> Gradients:
        """dy in equal parts for x and the updates that are the extreme."""
        t, dy, y = self.t, self.t.wide(self.dy), self.node.result
        own = t.cast(t.eq(self.x, y), to=dy.type.dtype)
        theirs = t.cast(t.eq(self.updates, self.taken(y)), to=dy.type.dtype)
        share = t.div(dy, self.scattered(own, theirs, "add"))
        return self.answer(t.mul(own, share), t.mul(theirs, self.taken(share)))


def topk(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    """The gradients of the values where those stood, zeros elsewhere."""
    dy = dys[0]
    if dy is None:
        return [None]
    x, indices = node.operand(0), node.results[1]
    spread = t.scatter_elements(_empty(t, x, dy), indices, dy, axis=node.attrs["axis"], reduction="none")
    return [t.narrow(spread, 0)]
