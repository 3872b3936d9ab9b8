"""Detectors of routers, dispatch, combination and gradients on raw ONNX graphs; see ``onnx_patterns``."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_graph import VIEWS, RawGraph
from onnx_patterns import Site

SCORING = ("Softmax", "Sigmoid", "Add", "Cast", "Where", "Reciprocal", "Neg", "Exp", "Clip", "Log", "Mul", *VIEWS)
PRODUCTS = ("MatMul", "Gemm", "MatMulInteger", "MatMulNBits")


def routers(g: RawGraph) -> Iterator[Site]:
    """The k best, k a small number, of scores of a product; the choice of groups before it is part of the same."""
    for t in g.all("TopK", "ArgMax"):
        if not _sorts(g, t) and _scored(g, g.inputs[t][0]):
            yield Site("router", (t,))


def _sorts(g: RawGraph, topk: int) -> bool:
    """Whether a TopK takes all there is: a sort, as torch.sort is exported."""
    if g.ops[topk] != "TopK":
        return False
    return g.attribute(topk, "largest", 1) == 0 or g.integers(g.inputs[topk][1]) is None


def _scored(g: RawGraph, name: str) -> bool:
    for _ in range(16):
        i = g.made.get(name)
        if i is None:
            return False
        if g.ops[i] in PRODUCTS:
            return any(g.is_weight(n) or g.behind(n) in g.fed for n in g.inputs[i][1:2])
        if g.ops[i] not in SCORING:
            return False
        names = g.inputs[i][2:] if g.ops[i] == "Where" else g.inputs[i]
        name = next((n for n in names if not g.is_weight(n)), "")
    return False


def sorts(g: RawGraph) -> Iterator[Site]:
    """Keys sorted: a TopK of all of them."""
    yield from (Site("sort", (t,)) for t in g.all("TopK") if _sorts(g, t))


def chosen_rows(g: RawGraph) -> Iterator[Site]:
    """Positions of what is not zero: a size that data decides, as in loops over experts."""
    yield from (Site("nonzero", (i,)) for i in g.all("NonZero", "Loop", "If", "Scan"))


def one_hots(g: RawGraph) -> Iterator[Site]:
    """Choices spread over the experts: OneHot, or compared with 0, 1, 2, ..."""
    yield from (Site("one-hot", (i,)) for i in g.all("OneHot") if not g.is_weight(g.inputs[i][0]))
    for i in g.all("Equal"):
        table = next((n for n in g.inputs[i] if g.is_weight(n)), None)
        numbers = g.integers(g.behind(table)) if table is not None else None
        if numbers is not None and len(numbers) > 1 and numbers == list(range(len(numbers))):
            yield Site("one-hot", (i,))


def repeated_tokens(g: RawGraph) -> Iterator[Site]:
    """Each token k times: Unsqueeze, Expand (or Tile), and flat again."""
    for e in g.all("Expand", "Tile"):
        row = g.maker(g.inputs[e][0], "Unsqueeze")
        flat = [r for r in g.users.get(g.outputs[e][0], []) if g.ops[r] == "Reshape"]
        if row is None or not flat or g.is_weight(g.inputs[row][0]):
            continue
        axes = g.integers(g.inputs[row][1]) if len(g.inputs[row]) > 1 else None
        shape = g.shapes.get(g.outputs[flat[0]][0], [])
        read = g.readers(g.outputs[flat[0]][0], "MatMul", "Gather", "GatherND", "Mul", through=("Unsqueeze", "Cast"))
        if axes == [1] and len(shape) == 2 and read:
            yield Site("repeated-tokens", (e,))


def gathered_weights(g: RawGraph) -> Iterator[Site]:
    """A weight matrix per token and choice, gathered for a batched product."""
    for i in g.all("GatherND", "Gather"):
        weight = g.inputs[i][0]
        deep = len(g.constants[weight].dims) == 3 if weight in g.constants else len(g.shapes.get(weight, [])) == 3
        given = weight in g.constants or weight in g.fed
        if deep and given and not g.is_weight(g.inputs[i][1]) and g.readers(g.outputs[i][0], "MatMul"):
            yield Site("gathered-weights", (i,))


def combined_rows(g: RawGraph) -> Iterator[Site]:
    """Expert outputs times weights, summed over the choices of a token or added into its row."""
    for i in g.all("ReduceSum"):
        mul = g.source(g.inputs[i][0], "Mul", through=(*VIEWS, "Gather", "GatherND"))
        axes = g.integers(g.inputs[i][1]) if len(g.inputs[i]) > 1 else None
        if mul is None or axes not in ([1], [0], [-2]):
            continue
        rows = [n for n in g.inputs[mul] if g.source(n, "MatMul", "Gather", "GatherND", "Concat", "Add") is not None]
        weights = [n for n in g.inputs[mul] if n not in rows]
        if rows and (weights or len(rows) == 2):
            yield Site("combined-rows", (i, mul))
    for i in g.all("ScatterElements", "ScatterND"):
        mul = g.source(g.inputs[i][2], "Mul")
        weighed = mul is not None and any(g.source(n, "MatMul", "Gemm", "Concat") is not None for n in g.inputs[mul])
        if weighed:
            yield Site("combined-rows", (i,))


def silu_gradients(g: RawGraph) -> Iterator[Site]:
    """dy * s * (1 + x * (1 - s)), s the sigmoid of x: torch's gradient of silu."""
    for s in g.all("Sigmoid"):
        x = g.inputs[s][0]
        for sub in g.readers(g.outputs[s][0], "Sub"):
            for mul in g.readers(g.outputs[sub][0], "Mul"):
                if x in g.inputs[mul] and g.readers(g.outputs[mul][0], "Add"):
                    yield Site("silu-gradient", (mul, sub))


def softmax_gradients(g: RawGraph) -> Iterator[Site]:
    """p * dp - p * sum(p * dp), p a softmax."""
    for s in g.all("Softmax"):
        p = g.outputs[s][0]
        for mul in g.readers(p, "Mul"):
            sums = g.readers(g.outputs[mul][0], "ReduceSum")
            after = [m for r in sums for m in g.readers(g.outputs[r][0], "Mul") if p in map(g.behind, g.inputs[m])]
            if after and g.readers(g.outputs[after[0]][0], "Sub", "Add", "Neg"):
                yield Site("softmax-gradient", (mul, after[0]))


MOE_DETECTORS = (
    routers,
    sorts,
    chosen_rows,
    one_hots,
    repeated_tokens,
    gathered_weights,
    combined_rows,
    silu_gradients,
    softmax_gradients,
)
