"""Detectors of what exporters write for the parts of a layer, on raw ONNX graphs; they share nothing with moec.

Each finds sites: the positions of the nodes that make the pattern what it is. What may stand between them (views,
casts) is looked through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onnx_graph import VIEWS, RawGraph

TRIG = ("Cos", "Sin")
ADDED = ("Add", "Mul", "Div", "Where", "Cast", "Sub", "Max", "Clip", "Expand", "Concat", *VIEWS)
"""What stands between scores and their softmax: scale, mask, sinks."""
LATER = (*VIEWS, "Where", "Expand", "Slice", "Dropout")
"""What stands between probabilities and their product with the values."""


@dataclass(frozen=True)
class Site:
    """One place: the nodes that a rewrite must have had its hands on, ``key`` first."""

    pattern: str
    nodes: tuple[int, ...]

    @property
    def key(self) -> int:
        return self.nodes[0]


def rotate_half(g: RawGraph) -> Iterator[Site]:
    """concat(-x[h:], x[:h]) on the last axis, multiplied by a table and added to x times another."""
    for c in g.all("Concat"):
        if len(g.inputs[c]) != 2:
            continue
        first, second = g.inputs[c]
        neg = g.maker(first, "Neg")
        low = g.maker(second, "Slice", "Split")
        high = None if neg is None else g.maker(g.inputs[neg][0], "Slice", "Split")
        if neg is None or low is None or high is None or g.inputs[low][0] != g.inputs[high][0]:
            continue
        mul = g.readers(g.outputs[c][0], "Mul")
        if mul and any(g.readers(g.outputs[m][0], "Add") for m in mul):
            yield Site("rotate-half", (c, neg))


def turned_pairs(g: RawGraph) -> Iterator[Site]:
    """a*c - b*s and b*c + a*s, put together: rotary embedding written on the two halves, or on even and odd lanes."""
    for sub in g.all("Sub"):
        left, right = (g.source(n, "Mul") for n in g.inputs[sub])
        if left is None or right is None:
            continue
        a, b = ({g.behind(n) for n in g.inputs[m]} for m in (left, right))
        for add in g.all("Add"):
            parts = [g.source(n, "Mul") for n in g.inputs[add]]
            if None in parts:
                continue
            c, d = ({g.behind(n) for n in g.inputs[m]} for m in parts if m is not None)
            crossed = (a & c and a & d and b & c and b & d) and left not in parts and right not in parts
            together = set(g.readers(g.outputs[sub][0], "Concat")) & set(g.readers(g.outputs[add][0], "Concat"))
            if crossed and together:
                yield Site("turned-pairs", (sub, add))


@dataclass(frozen=True)
class Scores:
    """Attention as found: the softmax, and the names of queries, keys and values; ``product`` is q k^T."""

    key: tuple[int, ...]
    query: str
    keys: str
    values: str


def _attention(g: RawGraph) -> Iterator[Scores]:
    for s in g.all("Softmax"):
        values = g.readers(g.outputs[s][0], "MatMul", through=LATER)
        product = _product(g, g.inputs[s][0])
        if values and product is not None:
            yield Scores((s, product, values[0]), *g.inputs[product][:2], g.inputs[values[0]][1])
    for a in g.all("Attention"):
        yield Scores((a,), *g.inputs[a][:3])


def _product(g: RawGraph, name: str) -> int | None:
    """The first MatMul above scores: down every input of what adds, scales and masks."""
    todo, seen = [name], set()
    while todo:
        i = g.made.get(todo.pop(0))
        if i is None or i in seen:
            continue
        seen.add(i)
        if g.ops[i] == "MatMul":
            weights = [n for n in g.inputs[i] if g.is_weight(n)]
            if not weights:
                return i
        elif g.ops[i] in ADDED:
            todo.extend(g.inputs[i])
    return None


def sdpa(g: RawGraph) -> Iterator[Site]:
    """softmax(q k^T) v in parts."""
    for found in _attention(g):
        if len(found.key) == 3:
            yield Site("attention", found.key)


SCALED = ("Mul", "Div", "Expand", *VIEWS)


@dataclass(frozen=True)
class Joined:
    """A tensor put together of parts on its last axis: the node that does it, and the parts."""

    node: int
    parts: tuple[str, ...]


def _joined(g: RawGraph, name: str) -> Joined | None:
    """How a query or key was put together, its scale, heads and views looked through: by a Concat (tools merge that of
    the parts with that of the turned lanes into one), or by two writes into one tensor.
    """
    for _ in range(16):
        i = g.made.get(name)
        if i is None:
            return None
        if g.ops[i] == "Concat" and len(g.inputs[i]) in (2, 3) and g.along_last(i):
            return Joined(i, tuple(g.inputs[i]))
        if g.ops[i] == "ScatterND":
            earlier = g.source(g.inputs[i][0], "ScatterND")
            return None if earlier is None else Joined(i, (g.inputs[earlier][2], g.inputs[i][2]))
        if g.ops[i] not in SCALED:
            return None
        name = next((n for n in g.inputs[i] if g.number(n) is None and g.made.get(n) is not None), "")
    return None


TURNED = ("Add", "Sub", "Concat", "RotaryEmbedding")


def _turned(g: RawGraph, name: str) -> bool:
    """Whether a part was turned by position: the sum that ends rotate-half, or its lanes put together."""
    return g.source(name, *TURNED, through=(*VIEWS, "Expand", "Tile")) is not None


def _cut_from(g: RawGraph, name: str) -> set[str]:
    """The tensors that a part is cut from along the last axis, before or after it was turned."""
    found: set[str] = set()
    todo, seen = [name], set()
    while todo:
        i = g.source(todo.pop(), through=(*VIEWS, "Expand", "Tile"))
        if i is None or i in seen:
            continue
        seen.add(i)
        if g.ops[i] in ("Slice", "Split") and g.along_last(i):
            found.add(g.behind(g.inputs[i][0]))
            todo.append(g.inputs[i][0])
        elif g.ops[i] in (*TURNED, "Mul", "Neg"):
            todo += g.inputs[i]
    return found


def concat_halves(g: RawGraph) -> Iterator[Site]:
    """Queries and keys each put together from a part with and one without positions, read by one q k^T.

    Where the key's parts are cut from one tensor the rotation is one of some lanes: ``partial-rotary``.
    """
    for found in _attention(g):
        q, k = _joined(g, found.query), _joined(g, found.keys)
        if q is None or k is None:
            continue
        if not any(_turned(g, n) for n in q.parts) or not any(_turned(g, n) for n in k.parts):
            continue
        if set.intersection(*(_cut_from(g, n) for n in k.parts)):
            yield from (Site("partial-rotary", (n,)) for n in (q.node, k.node))
        else:
            yield Site("concat-halves", (q.node, k.node))


def shared_rope_key(g: RawGraph) -> Iterator[Site]:
    """A key's part with positions is one head, broadcast to all before it is put behind each head's own part."""
    for found in _attention(g):
        k = _joined(g, found.keys)
        for name in k.parts if k is not None else ():
            wide = g.source(name, "Expand", "Tile") if _turned(g, name) else None
            while wide is not None and (inner := g.source(g.inputs[wide][0], "Expand", "Tile")) is not None:
                wide = inner
            if k is not None and wide is not None:
                yield Site("shared-rope-key", (wide, k.node))


def padded_values(g: RawGraph) -> Iterator[Site]:
    """Values padded to the keys' width, and the output cut back."""
    for found in _attention(g):
        pad = g.source(found.values, "Pad")
        if pad is not None:
            yield Site("padded-values", (pad,))


def root_mean_square(g: RawGraph) -> Iterator[tuple[int, int, str]]:
    """(mean, root, x) of sqrt(mean(x^2) + eps)."""
    for mean in g.all("ReduceMean"):
        square = g.source(g.inputs[mean][0], "Pow", "Mul")
        if square is None:
            continue
        x, other = g.inputs[square][:2]
        if (g.ops[square] == "Pow" and g.number(other) != 2) or (g.ops[square] == "Mul" and x != other):
            continue
        for add in g.readers(g.outputs[mean][0], "Add"):
            for root in g.readers(g.outputs[add][0], "Sqrt"):
                yield mean, root, x


def norms(g: RawGraph) -> Iterator[Site]:
    """x / sqrt(mean(x^2) + eps), with or without the mean taken off first."""
    for mean, root, _ in root_mean_square(g):
        inverse = g.readers(g.outputs[root][0], "Reciprocal", "Div")
        if inverse:
            yield Site("norm", (mean, root, inverse[0]))


NORM_OPS = ("RMSNormalization", "SimplifiedLayerNormalization", "LayerNormalization")
SKIP_OPS = ("SkipSimplifiedLayerNormalization", "SkipLayerNormalization")


def norm_ops(g: RawGraph) -> Iterator[Site]:
    """Norms that are one op."""
    yield from (Site("norm-op", (i,)) for i in g.all(*NORM_OPS))


def residual_norms(g: RawGraph) -> Iterator[Site]:
    """A sum of two activations that a norm reads."""
    normed = [(x, mean) for mean, _, x in root_mean_square(g)] + [(g.inputs[i][0], i) for i in g.all(*NORM_OPS)]
    for x, norm in normed:
        add = g.source(x, "Add", through=("Cast", "Identity"))
        if add is not None and not any(g.is_weight(n) for n in g.inputs[add]):
            yield Site("residual-norm", (add, norm))
    yield from (Site("residual-norm", (i,)) for i in g.all(*SKIP_OPS))


def _silus(g: RawGraph) -> Iterator[tuple[int, int]]:
    """(sigmoid, mul) of x * sigmoid(x), x scaled or not."""
    for s in g.all("Sigmoid"):
        x = g.inputs[s][0]
        scaled = g.maker(x, "Mul")
        behind = {x} | (set(g.inputs[scaled]) if scaled is not None else set())
        for m in g.readers(g.outputs[s][0], "Mul"):
            if any(g.behind(n, ("Identity", "Cast")) in behind for n in g.inputs[m]):
                yield s, m
    for i in g.all("Swish", "QuickGelu"):
        yield i, i


def gated(g: RawGraph) -> Iterator[Site]:
    """silu(gate) * up, both from products: forward of a gated activation."""
    for s, silu in _silus(g):
        for m in g.readers(g.outputs[silu][0], "Mul", through=("Cast", "Identity")):
            other = [n for n in g.inputs[m] if g.source(n, "Mul", "Sigmoid", "Swish", "QuickGelu") != silu]
            gate = g.inputs[s][0]
            if len(other) == 1 and _from_product(g, other[0]) and _from_product(g, gate):
                yield Site("gated-activation", (m, silu, s))


def _from_product(g: RawGraph, name: str) -> bool:
    """Whether a tensor is (a part of, plus a bias) a product."""
    through = (*VIEWS, "Split", "Slice", "Add", "Clip", "Mul", "Gather")
    for _ in range(8):
        i = g.source(name)
        if i is None:
            return False
        if g.ops[i] in ("MatMul", "Gemm", "MatMulInteger", "MatMulNBits", "FusedMatMul", "Einsum", "Concat"):
            return True
        if g.ops[i] not in through:
            return False
        name = next((n for n in g.inputs[i] if not g.is_weight(n)), "")
    return False


DETECTORS: tuple[Callable[[RawGraph], Iterator[Site]], ...] = (
    rotate_half,
    turned_pairs,
    sdpa,
    concat_halves,
    shared_rope_key,
    padded_values,
    norms,
    norm_ops,
    residual_norms,
    gated,
)
