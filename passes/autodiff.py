"""The joint training graph as a pass; see ``moec.autodiff`` for the work."""

from __future__ import annotations

from moec.autodiff import Options, differentiate
from moec.autodiff.activity import LAYOUT
from moec.diagnostics import Usage
from moec.ir.graph import Graph, Module, merged_origin
from moec.ir.symbol import symbols_of
from moec.ir.types import DTYPES, F16, DType
from moec.ops.registry import opdef
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.expand_moe import ExpandMoE
from moec.passes.inline import inline_calls


@register_pass
class AutoDiff(Pass):
    """Turn the layer into one joint graph of forward, loss hook and backward; outputs d_<input> and d_<weight> are
    added.

    ``loss`` names outputs, several joined by "+"; a scalar is a loss, of another output the incoming gradient becomes
    an input d_<output>. None: the only scalar, or every output where there is no scalar. ``wrt`` names the inputs and
    weights to differentiate for, joined by "+"; none: all floats that the loss varies with. ``weight_grads`` is the
    dtype of gradients of 16-bit weights, none for their own. ``loss_scale`` multiplies the loss, and gradients of
    weights are divided by it at the end; without ``weight_grads=f32`` small ones of f16 weights vanish there again.
    Blocks are expanded first; functions in which data decides sizes or that only lay tensors out are taken apart, the
    others are differentiated once each.
    """

    name = "autodiff"
    loss: str = ""
    wrt: str = ""
    weight_grads: str = ""
    loss_scale: float = 1.0

    def run(self, module: Module, context: Context) -> Result:
        options = Options(_names(self.loss), _names(self.wrt), _dtype(self.weight_grads), _scale(self.loss_scale))
        result = ExpandMoE().run(module, context)
        inline_calls(module, result, lambda fn: decides_sizes(fn) or only_lays_out(fn))
        before = module.main.count
        differentiate(module, options)
        gradients = [n for n in module.main.output_names if n.startswith("d_")]
        origin = merged_origin([], self.name)
        for name in gradients:
            result.apply(f"gradient {name}", origin, module.main)
        vanishing = [n for n in module.nodes() if n.op == "weight" and n.attrs["dtype"] is F16]
        vanishing = [n for n in vanishing if f"d_{n.attrs['name']}" in gradients]
        if options.loss_scale > 1 and options.weight_dtype is None and vanishing:
            result.miss("loss-scale", _VANISH, tuple(vanishing), module.main)
        result.changed = result.changed or module.main.count != before
        return result


_VANISH = (
    "gradients of f16 weights are divided by loss_scale in f16, where small ones vanish: weight_grads=f32 keeps them"
)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split("+"))))


def _dtype(name: str) -> DType | None:
    if not name:
        return None
    found = DTYPES.get(name)
    if found is None or not found.is_float or found.bits < 32:
        raise Usage(f"gradients of weights are kept in f32 or f64, not in '{name}'")
    return found


def _scale(value: float) -> float:
    if not 0 < value < float("inf"):
        raise Usage(f"a loss scale is a positive number, not {value}")
    return value


def decides_sizes(graph: Graph) -> bool:
    """Whether data decides a size inside the function: one that its inputs do not tell."""
    given = {s for v in graph.inputs for d in v.type.shape or () for s in symbols_of(d)}
    return any(s not in given for n in graph for v in n.results for d in v.type.shape or () for s in symbols_of(d))


def only_lays_out(graph: Graph) -> bool:
    """Whether all that the function does is to lay its inputs out anew: what it returns is saved as views are."""
    return all(n.op in LAYOUT or "source" in opdef(n.op).traits for n in graph)
