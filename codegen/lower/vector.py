"""Lowering of elementwise ops, casts, broadcasts, row reductions, softmax and norms, alone or as a fused region."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moec.codegen.builder import KernelBuilder
from moec.codegen.kernels.vector.assemble import Job, Sink, Source, assemble
from moec.codegen.lower.base import Lowering, device_dtype, lowering, where
from moec.codegen.lower.sizes import Sizes, numel
from moec.codegen.lower.vector_body import Body
from moec.codegen.scalar import Scalar, binary
from moec.diagnostics import NoKernel, Problem
from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape
from moec.ops.rowspace import common_shape, form, rows_cols

FORMS = {"full": "full", "column": "col", "row": "row", "scalar": "one"}


class _Space(Sizes):
    """The row space of a kernel, ``full``, and the run-time arguments that its sizes need."""

    def __init__(self, k: KernelBuilder, cx: Lowering, full: Shape):
        super().__init__(k, cx)
        self.full = full

    def shape(self, value: Value) -> Shape:
        """The dims of ``value``; where every value is a scalar, those of one element, which is then computed as any."""
        return value.type.dims or (self.full if self.full == (1,) else ())

    def rows_of(self, shape: Shape) -> Callable[[Scalar], Scalar]:
        """Row of the full space to row of ``shape``, some of whose leading dimensions repeat (are 1 or absent)."""
        lead = self.full[:-1]
        own = (1,) * (len(self.full) - len(shape)) + tuple(shape[:-1])
        sizes = [self.of(d, f"d{i}") for i, d in enumerate(lead)]

        def row(r: Scalar) -> Scalar:
            total: Scalar = 0
            below: Scalar = 1
            stride: Scalar = 1
            for i in reversed(range(len(lead))):
                if own[i] == lead[i] and lead[i] != 1:
                    index = (r // below) % sizes[i] if i else r // below
                    total = binary("+", binary("*", index, stride), total)
                    stride = binary("*", stride, sizes[i])
                below = binary("*", below, sizes[i])
            return total

        return row


def vector_kernel(
    cx: Lowering,
    node: Node,
    name: str,
    nodes: Sequence[Node],
    inputs: Sequence[tuple[Value, str]],
    outputs: Sequence[tuple[Value, str]],
) -> None:
    """One kernel for ``nodes``; ``inputs`` and ``outputs`` pair their values with device tensors."""
    kept = [n for n in nodes if n.attrs.get("keepdims", True)]  # the others' results are columns without their 1
    shapes = [v.type.dims for v, _ in inputs] + [r.type.dims for n in kept for r in n.results]
    shapes = [s for s in shapes if s]
    full = common_shape(shapes) or (1,)
    k = KernelBuilder(name, "aiv", cx.capacities)
    space = _Space(k, cx, full)
    rows_dim, cols_dim = rows_cols(full)
    rows, cols = space.of(rows_dim, "rows"), space.of(cols_dim, "cols")
    body = Body(cols)
    sources, operands = [], {}
    for i, (value, tensor) in enumerate(inputs):
        source = _source(space, body, node, value, f"x{i}", rows, cols)
        sources.append(source)
        operands[source.tensor.name] = tensor
    for n in nodes:
        body.node(n)
    sinks = []
    for i, (value, tensor) in enumerate(outputs):
        sink = _sink(space, body, node, value, f"y{i}", rows, cols)
        sinks.append(sink)
        operands[sink.tensor.name] = tensor
    most = cols if isinstance(cols, int) else cx.bounds(cols_dim)[1]
    job = Job(k, body.values, rows, cols, most, tuple(sources), tuple(sinks))
    blocks = assemble(job)
    cx.launch(node, k.finish(blocks), operands, space.given)


def _source(space: _Space, body: Body, node: Node, value: Value, name: str, rows: Scalar, cols: Scalar) -> Source:
    shape = space.shape(value)
    dtype = device_dtype(value.type.dtype)
    place = form(shape, space.full) if shape else "scalar"
    if place is not None:
        of = FORMS[place]
        sizes: tuple[Scalar, ...] = {"full": (rows, cols), "col": (rows,), "row": (cols,), "one": (1,)}[of]
        return Source(body.input(value, of), space.k.gm(name, dtype, sizes, "in"))
    if shape[-1] != space.full[-1]:
        what = (
            f"{node.op} broadcasts {list(map(str, shape))} to {list(map(str, space.full))}, which has no vector kernel"
        )
        raise NoKernel(Problem(what, where(node), "expand the smaller operand first"))
    tensor = space.k.gm(name, dtype, (space.of(numel(shape[:-1]), f"{name}_rows"), cols), "in")
    return Source(body.input(value, "full"), tensor, row_of=space.rows_of(shape))


def _sink(space: _Space, body: Body, node: Node, value: Value, name: str, rows: Scalar, cols: Scalar) -> Sink:
    shape = space.shape(value)
    dtype = device_dtype(value.type.dtype)
    reduced = shape == space.full[:-1] and shape != space.full
    place = "column" if reduced else form(shape, space.full) if shape else "scalar"
    if place == "full":
        return Sink(body.result(value, "full"), space.k.gm(name, dtype, (rows, cols), "out"))
    if place == "column" or (place == "scalar" and rows == 1):
        return Sink(body.result(value, "col"), space.k.gm(name, dtype, (rows,), "out"))
    what = f"{node.op} gives a {place or 'partly repeated'} of {list(map(str, space.full))}, which has no vector kernel"
    raise NoKernel(Problem(what, where(node), "let each result depend on rows"))


@lowering("fused")
def fused(cx: Lowering, node: Node) -> None:
    body = cx.module.functions[node.attrs["fn"]]
    inputs = [(inner, cx.tensor(node.operand(i))) for i, inner in enumerate(body.inputs)]
    outputs = [(v, cx.result(node, i)) for i, v in enumerate(body.outputs)]
    vector_kernel(
        cx,
        node,
        "fused_" + "_".join(dict.fromkeys(n.op for n in body if n.op != "constant"))[:40],
        list(body),
        inputs,
        outputs,
    )


def single(cx: Lowering, node: Node) -> None:
    """One node as a kernel of its own; one-element constants become literals."""
    constants, inputs = [], []
    for v in dict.fromkeys(v for v in node.operands if v is not None):
        if v.producer is not None and v.producer.op == "constant" and v.type.numel() == 1:
            constants.append(v.producer)
        else:
            inputs.append((v, cx.tensor(v)))
    vector_kernel(cx, node, f"vector_{node.op}", [*constants, node], inputs, [(node.result, cx.result(node))])
