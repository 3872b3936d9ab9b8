"""RMS norms in fused kernels, alone or behind the residual addition, recognised by what the kernel computes."""

from __future__ import annotations

from moec.codegen.operator_call import Argument, View
from moec.ir.graph import Graph, Node, Value
from moec.targets.ascend.aclnn.offer import NotOffered, Offer, double, floats, offers


class _Norm:
    """``y = rows * rsqrt(mean(rows^2) + eps) * weight`` in f32, rounded once. ``nodes``: all that it is made of."""

    def __init__(self, y: Value):
        self.nodes: set[Node] = set()
        scaled, weight = self._pair("mul", self._narrowed(y))
        self.weight = self._widened(weight)
        wide, self.root = self._pair("mul", scaled, second="rsqrt")
        self.rows = self._widened(wide)
        mean, eps = self._pair("add", self._only("rsqrt", self.root).operand(0), second="constant")
        number = self._only("constant", eps).attrs["value"]
        if number.size != 1:
            raise NotOffered("no RMS norm")
        self.eps = float(number.numpy().reshape(-1)[0])
        reduced = self._only("reduce_mean", mean)
        squares = self._only("mul", reduced.operand(0))
        last = self.rows.type.rank - 1
        if {squares.operand(0), squares.operand(1)} != {wide} or tuple(reduced.attrs["axes"]) != (last,):
            raise NotOffered("no RMS norm")

    def _only(self, op: str, value: Value) -> Node:
        node = value.producer
        if node is None or node.op != op:
            raise NotOffered("no RMS norm")
        self.nodes.add(node)
        return node

    def _pair(self, op: str, value: Value, second: str = "") -> tuple[Value, Value]:
        """The operands of ``op``; with ``second`` the one that this op made stands last."""
        node = self._only(op, value)
        a, b = node.operand(0), node.operand(1)
        return (b, a) if second and a.producer is not None and a.producer.op == second else (a, b)

    def _narrowed(self, y: Value) -> Value:
        return self._only("cast", y).operand(0) if y.type.dtype.name != "f32" else y

    def _widened(self, x: Value) -> Value:
        """What ``x`` was before it was cast to f32."""
        return self._only("cast", x).operand(0) if x.producer is not None and x.producer.op == "cast" else x


def _norm_of(body: Graph) -> tuple[_Norm, int]:
    """The norm that ``body`` computes and which of its outputs that is."""
    for i, y in enumerate(body.outputs):
        try:
            return _Norm(y), i
        except NotOffered:
            continue
    raise NotOffered("the library has no call for what is fused here")


@offers("fused")
def fused(o: Offer) -> None:
    body = o.module.functions[o.node.attrs["fn"]]
    norm, at = _norm_of(body)
    place = {value: i for i, value in enumerate(body.inputs)}
    if norm.weight not in place or norm.weight.type.rank != 1:
        raise NotOffered("aclnnRmsNorm needs a weight")
    floats(o.node, norm.rows.type.dtype.name, norm.weight.type.dtype.name, body.outputs[at].type.dtype.name)
    results: dict[Value, View] = {value: o.result(i) for i, value in enumerate(body.outputs)}
    rstd = results.pop(norm.root, None) or o.scratch("rstd", "f32", (*norm.rows.type.dims[:-1], 1))
    gamma = o.operand(place[norm.weight])
    y = results.pop(body.outputs[at])
    settings: dict[str, Argument] = {"epsilon": double(norm.eps), "yOut": y, "rstdOut": rstd}
    if norm.rows in place:
        function, written = "aclnnRmsNorm", ["yOut", "rstdOut"]
        arguments: dict[str, Argument] = {"x": o.operand(place[norm.rows]), "gamma": gamma, **settings}
    else:
        total = norm.rows.producer
        if total is None or total.op != "add" or any(v not in place for v in total.operands):
            raise NotOffered("more than a residual addition before the norm")
        a, b = total.operand(0), total.operand(1)
        if a.type != b.type or a.type != norm.rows.type:
            raise NotOffered("an addition that broadcasts")
        norm.nodes.add(total)
        x = results.pop(norm.rows, None) or o.scratch("total", gamma.dtype, norm.rows.type.dims)
        function, written = "aclnnAddRmsNorm", ["yOut", "rstdOut", "xOut"]
        sides: dict[str, Argument] = {"x1": o.operand(place[a]), "x2": o.operand(place[b])}
        arguments = {**sides, "gamma": gamma, **settings, "xOut": x}
    if results or norm.nodes != set(body):
        raise NotOffered("the library has no call for what else is fused here")
    o.call(function, results=written, **arguments)
