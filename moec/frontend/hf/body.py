"""Building the function of a decoder layer: its weights are parameters, named below ``model.layers.<n>``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moec.frontend.hf.families import Names
from moec.frontend.hf.spec import Dense, Moe
from moec.ir.graph import Graph, Origin, Source, Value
from moec.ir.symbol import Dim
from moec.ir.types import F32, DType, TensorType
from moec.ops.build import Builder


@dataclass
class Body:
    """A layer's function while it is built. ``build`` puts nodes; ``weights`` are its parameters by state-dict name."""

    graph: Graph
    names: Names
    hidden: int
    dtype: DType
    eps: float
    file: str
    build: Builder = field(init=False)
    weights: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.build = Builder(self.graph)

    def module(self, name: str) -> None:
        """Nodes from here on come from the model's module ``name``."""
        self.build.origin = Origin((Source(self.file, 1, name),))

    def weight(self, name: str, *shape: Dim, dtype: DType | None = None) -> Value:
        """A parameter of the function."""
        value = self.graph.add_input(name.replace(".", "_"), TensorType(dtype or self.dtype, shape))
        self.weights[name] = value
        return value

    def linear(self, x: Value, name: str, width: int, bias: bool = False) -> Value:
        """x W^T (+ b) with W [width, last dimension of x] as torch.nn.Linear stores it."""
        self.module(name)
        y: Value = self.build.matmul(x, self.weight(f"{name}.weight", width, x.type.dims[-1]), transpose_b=True)
        return self.build.add(y, self.weight(f"{name}.bias", width)) if bias else y

    def norm(self, x: Value, name: str, eps: float) -> Value:
        """RMS norm over the last dimension."""
        self.module(name)
        return self.build.rms_norm(x, self.weight(f"{name}.weight", x.type.dims[-1]), eps=eps)

    def cut(self, x: Value, start: int, stop: int) -> Value:
        """Elements start to stop of the last dimension."""
        return self.build.slice(x, axis=x.type.rank - 1, start=start, stop=stop, step=1)


def dense(b: Body, spec: Dense, x: Value) -> Value:
    """A gated MLP of x [B, S, H]."""
    n = b.names
    gate = b.linear(x, f"{n.mlp}.{n.gate}", spec.inner)
    up = b.linear(x, f"{n.mlp}.{n.up}", spec.inner)
    b.module(n.mlp)
    attrs: dict[str, Any] = {"approximate": "tanh"} if spec.activation == "gelu_tanh" else {}
    if spec.activation == "gelu":
        attrs = {"approximate": "none"}
    active = getattr(b.build, spec.activation.removesuffix("_tanh"))(gate, **attrs)
    return b.linear(b.build.mul(active, up), f"{n.mlp}.{n.down}", b.hidden)


def moe(b: Body, spec: Moe, x: Value) -> Value:
    """An MoE block of x [B, S, H]. Experts are stacked: gate_up [E, 2 I, H], down [E, H, I]."""
    n, hidden = b.names, b.hidden
    b.module(n.mlp)
    router, shared = f"{n.mlp}.{n.router}", f"{n.mlp}.{n.shared}"
    experts_in, experts_out = f"{n.mlp}.{n.experts_in}", f"{n.mlp}.{n.experts_out}"
    e, inner = spec.experts, spec.inner
    operands: list[Value | None] = [
        x,
        b.weight(f"{router}.weight", e, hidden),
        b.weight(experts_in, e, 2 * inner, hidden),
        b.weight(experts_out, e, hidden, inner),
        b.weight(f"{router}.bias", e) if spec.router_bias else None,
        b.weight(f"{n.mlp}.{n.score_bias}", e, dtype=F32) if spec.score_bias else None,
        b.weight(f"{experts_in}_bias", e, 2 * inner) if spec.expert_bias else None,
        b.weight(f"{experts_out}_bias", e, hidden) if spec.expert_bias else None,
    ]
    if spec.shared:
        operands += [
            b.weight(f"{shared}.gate_up_proj.weight", 2 * spec.shared, hidden),
            b.weight(f"{shared}.{n.down}.weight", hidden, spec.shared),
            b.weight(f"{shared}_gate.weight", 1, hidden) if spec.shared_gate else None,
        ]
    while operands[-1] is None:
        operands.pop()
    attrs = {"router_dtype": b.dtype, "score_dtype": b.dtype, "weights_dtype": b.dtype} | spec.attributes
    y: Value = b.build.moe(*operands, **attrs)[0]
    return y
