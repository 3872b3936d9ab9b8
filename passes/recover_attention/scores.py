"""From a softmax to the product it is taken of: what scales, caps and masks the scores on the way, and sinks beside
them; and from the softmax to the product with the values."""

from __future__ import annotations

from dataclasses import dataclass, field

from moec.ir.graph import Node, Value
from moec.ir.symbol import Dim
from moec.passes.recover_attention.conditions import BLOCKED
from moec.passes.recover_attention.numbers import scalar
from moec.passes.recover_attention.views import scaling

STEPS = 24
"""Longest chain of elementwise ops between product and softmax that is followed."""

READ_ELSEWHERE = (
    "the probabilities are read by others than the product with the values, as by the backward pass of a training "
    "step, for whom the scores would be computed a second time"
)


class NotAttention(Exception):
    """The softmax is part of something else."""


class NearMiss(Exception):
    """What looks like attention is not, for a reason worth telling; ``nodes`` are to blame."""

    def __init__(self, reason: str, *nodes: Node | None):
        super().__init__(reason)
        self.nodes = [n for n in nodes if n is not None]


@dataclass(frozen=True)
class Term:
    """A mask: ``value`` added to the scores, times ``factor``; or a bool ``value`` that keeps (``keeps``) or blocks
    scores, with ``fill`` for the blocked ones.
    """

    value: Value
    batch: tuple[Dim, ...]
    """The leading dims of the scores where it is applied."""
    factor: float = 1.0
    fill: float | None = None
    keeps: bool = True


@dataclass
class Scores:
    """Scores as the softmax sees them: softcap(scale * product) with ``terms`` applied, and ``sinks`` beside them."""

    product: Node
    scale: float = 1.0
    softcap: float | None = None
    terms: list[Term] = field(default_factory=list)
    sinks: Value | None = None
    nodes: list[Node] = field(default_factory=list)


def find_scores(softmax: Node) -> Scores:
    """What the softmax is taken of. Raises NotAttention or NearMiss."""
    if softmax.attrs["axis"] != softmax.result.type.rank - 1:
        raise NotAttention
    walk = _Walk(softmax)
    value = walk.beside(softmax.operand(0))
    for _ in range(STEPS):
        node = value.producer
        if node is None:
            raise NotAttention
        if node.op == "matmul":
            return walk.scores(node)
        value = walk.step(node)
        walk.nodes.append(node)
    raise NotAttention


class _Walk:
    """Down from a softmax's operand, one node a step."""

    def __init__(self, softmax: Node):
        self.softmax = softmax
        self.factor = 1.0
        """What everything below is multiplied by."""
        self.softcap: float | None = None
        self.terms: list[Term] = []
        self.sinks: Value | None = None
        self.nodes: list[Node] = []

    def scores(self, product: Node) -> Scores:
        scale = self.factor if self.softcap is None else self.factor * self.softcap
        return Scores(product, scale, self.softcap, self.terms[::-1], self.sinks, self.nodes)

    def beside(self, value: Value) -> Value:
        """The scores, where sinks stand beside them and the largest score is taken off."""
        node = value.producer
        if node is not None and node.op == "sub" and _is_largest(node.operand(1), node.operand(0)):
            self.nodes.append(node)
            value = node.operand(0)
            node = value.producer
        if node is None or node.op != "concat" or len(node.operands) != 2:
            return value
        scores, column = node.operand(0), node.operand(1)
        if node.attrs["axis"] != value.type.rank - 1 or column.type.dims[-1] != 1 or not reaches_product(scores):
            return value
        self.nodes.append(node)
        self.sinks = column
        return scores

    def step(self, node: Node) -> Value:
        """Account for one node; what it does to."""
        op = node.op
        if op == "cast":
            source = node.operand(0)
            if not (node.result.type.dtype.is_float and source.type.dtype.is_float):
                raise NotAttention
            return source
        if op == "reshape":
            return self.reshaped(node)
        if op == "tanh":
            return self.capped(node)
        if op == "sub" and _is_largest(node.operand(1), node.operand(0)):
            return node.operand(0)
        if op in ("add", "sub", "select"):
            return self.masked(node)
        scaled = scaling(node)
        if scaled is None:
            raise self.unfollowed(node)
        self.factor *= scaled[1]
        return scaled[0]

    def unfollowed(self, node: Node) -> Exception:
        """A node that attention does not have between product and softmax."""
        if any(v is not None and reaches_product(v) for v in node.operands):
            return NearMiss(f"scores pass through {node.op}, which attention has no place for", node)
        return NotAttention()

    def reshaped(self, node: Node) -> Value:
        source = node.operand(0)
        if source.type.shape is None or source.type.dims[-2:] != node.result.type.dims[-2:]:
            raise NotAttention
        return source

    def capped(self, node: Node) -> Value:
        if self.softcap is not None:
            raise NearMiss("scores pass through tanh twice", node)
        if self.factor <= 0:
            raise NearMiss(f"the soft cap is {self.factor}", node)
        self.softcap, self.factor = self.factor, 1.0
        return node.operand(0)

    def masked(self, node: Node) -> Value:
        """The scores beneath a mask."""
        operands = [node.operand(i) for i in range(len(node.operands))]
        term: Term
        batch = node.result.type.dims[:-2]
        if node.op == "select":
            which = 1 if (fill := scalar(operands[2])) is not None else 2
            fill = fill if which == 1 else scalar(operands[1])
            inner = operands[which]
            if fill is None or not reaches_product(inner):
                raise self.unfollowed(node)
            if fill > BLOCKED:
                raise NearMiss(f"scores that are masked become {fill}, which still counts in a softmax", node)
            term = Term(operands[0], batch, 1.0, fill, which == 1)
        else:
            sides = [v for v in operands if reaches_product(v)]
            if not sides:
                raise NotAttention
            inner = sides[0]
            if len(sides) == 2 or (node.op == "sub" and inner is not operands[0]):
                raise NearMiss("two products are added to one another before the softmax", node)
            other = operands[1] if inner is operands[0] else operands[0]
            term = Term(other, batch, self.factor if node.op == "add" else -self.factor)
        if self.softcap is not None:
            raise NearMiss("scores are masked before they are capped", node)
        if self.factor <= 0:
            raise NearMiss(f"masked scores are multiplied by {self.factor}", node)
        if inner.type.dims != node.result.type.dims:
            raise NearMiss(f"a mask makes scores {inner.type} into {node.result.type}", node)
        self.terms.append(term)
        return inner


def _is_largest(largest: Value, value: Value) -> bool:
    """Whether ``largest`` is the maximum of each row of ``value``."""
    node = largest.producer
    if node is None or node.op != "reduce_max" or node.operand(0) is not value or not node.attrs["keepdims"]:
        return False
    return bool(node.attrs["axes"] == (value.type.rank - 1,))


_PASSED = frozenset(("add", "sub", "select", "mul", "div", "cast", "reshape", "tanh", "neg", "maximum", "minimum"))


def reaches_product(value: Value, depth: int = STEPS) -> bool:
    """Whether ``value`` is made elementwise of a product [.., queries, keys] of two tensors that are no weights."""
    seen: set[Value] = set()
    stack = [value]
    rows = value.type.dims[-2:] if value.type.shape is not None else ()
    while stack and len(seen) < depth * 2:
        v = stack.pop()
        node = v.producer
        if node is None or v in seen or v.type.shape is None or v.type.dims[-2:] != rows or len(rows) < 2:
            continue
        seen.add(v)
        if node.op == "matmul" and not any(_is_weight(node.operand(i)) for i in (0, 1)):
            return True
        if node.op in _PASSED:
            stack.extend(o for o in node.operands if o is not None)
    return False


def _is_weight(value: Value) -> bool:
    """Whether it is a weight or constant, or a view of one."""
    node = value.producer
    for _ in range(STEPS):
        if node is None or node.op not in ("reshape", "transpose", "expand", "cast", "slice"):
            break
        node = node.operand(0).producer
    return node is not None and node.op in ("weight", "constant")


@dataclass
class Weighted:
    """The product with the values: the node, what rows without keys become, and whether a last column is cut off."""

    product: Node
    empty_rows: str
    cut: bool
    nodes: list[Node]


def find_weighted(softmax: Node) -> Weighted:
    """What becomes of the probabilities. Raises NotAttention or NearMiss."""
    value, zeroed, cut = softmax.result, False, False
    nodes: list[Node] = []
    for _ in range(STEPS):
        guarded = _guard(value)
        if guarded is not None:
            zeroed = True
            nodes += guarded
            value = guarded[-1].result
            continue
        readers = list(value.uses)
        product = next((n for n in readers if n.op == "matmul" and n.operand(0) is value), None)
        if product is not None and len(readers) > 1:
            raise NearMiss(READ_ELSEWHERE, *readers)
        if len(readers) > 1 and any(map(_leads_to_product, readers)):
            raise NearMiss(READ_ELSEWHERE, *readers)
        if len(readers) != 1:
            raise NotAttention
        node = readers[0]
        if product is not None:
            if product.attrs["transpose_a"] or product.operand(1) is value:
                raise NotAttention
            return Weighted(product, "zero" if zeroed else "nan", cut, nodes)
        last = value.type.rank - 1
        if node.op == "slice" and node.attrs["axis"] == last and not cut:
            if (node.attrs["start"], node.attrs["step"]) != (0, 1) or node.attrs["stop"] != value.type.dims[-1] - 1:
                raise NearMiss("more of the probabilities than a last column is cut off", node)
            cut = True
        elif node.op == "cast" and node.result.type.dtype.is_float:
            pass
        elif node.op != "reshape" or node.result.type.dims[-2:] != value.type.dims[-2:]:
            raise NotAttention
        nodes.append(node)
        value = node.result
    raise NotAttention


def _leads_to_product(node: Node) -> bool:
    """Whether a view of probabilities is multiplied by something."""
    if node.op not in ("reshape", "cast", "slice"):
        return False
    return any(n.op == "matmul" and n.operand(0) is node.result for n in node.result.uses)


def _guard(value: Value) -> list[Node] | None:
    """The nodes that make NaN rows zero, where nothing else reads ``value``."""
    check = next((n for n in value.uses if n.op == "is_nan"), None)
    if check is None or len(check.result.uses) != 1 or len(value.uses) != 2:
        return None
    chosen = next(iter(check.result.uses))
    if chosen.op != "select" or chosen.operand(0) is not check.result or chosen.operand(2) is not value:
        return None
    return [check, chosen] if scalar(chosen.operand(1)) == 0 else None
