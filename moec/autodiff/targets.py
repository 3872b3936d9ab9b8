"""What is differentiated for: inputs and weights, those named or all that can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moec.autodiff.activity import Wanted, called, cuts
from moec.diagnostics import Problem, Refusal, suggest
from moec.ir.graph import Graph, Module, Value
from moec.ir.types import DType
from moec.ops.registry import OPS


@dataclass(frozen=True)
class Options:
    """What to differentiate and how.

    ``loss``: outputs of ``main``: scalars are summed with weight 1, of others the incoming gradient becomes an input
    ``d_<output>``; none: the only scalar, or every output where there is no scalar. ``wrt``: inputs and weights whose
    gradients are wanted; none: all floats that the loss varies with, inputs that make masks aside. ``weight_dtype``:
    the dtype of the gradients of weights narrower than 32 bits, None for the weight's own. ``loss_scale``: what the
    loss is multiplied by, so that small gradients do not vanish in f16; weight gradients are divided by it at the end,
    gradients of inputs are not (they go on to the layer before, which does the same).
    """

    loss: Sequence[str] = ()
    wrt: Sequence[str] = ()
    weight_dtype: DType | None = None
    loss_scale: float = 1.0


@dataclass(frozen=True)
class Targets:
    """By input of ``main`` the dtype of its gradient, None where none is wanted; and the names of ``weights``."""

    inputs: Wanted
    weights: tuple[str, ...]


def targets(module: Module, options: Options) -> Targets:
    """The inputs and weights to differentiate for; Refusal lists names that are neither, or no floats."""
    weights = {n.attrs["name"]: n.result for n in module.nodes() if n.op == "weight"}
    known = {**weights, **{v.name: v for v in module.main.inputs}}
    problems = [_unknown(n, known) for n in options.wrt if n not in known]
    problems += [
        Problem(f"'{n}' is {known[n].type}, and only floats have gradients")
        for n in options.wrt
        if n in known and not known[n].type.dtype.is_float
    ]
    if problems:
        raise Refusal(problems)
    left = () if options.wrt else _Masks(module).inputs(module.main)
    floats = {n: v for n, v in known.items() if v.type.dtype.is_float and (not options.wrt or n in options.wrt)}
    return Targets(
        tuple(
            v.type.dtype if floats.get(v.name) is v and i not in left else None
            for i, v in enumerate(module.main.inputs)
        ),
        tuple(n for n in weights if n in floats),
    )


def _unknown(name: str, known: dict[str, Value]) -> Problem:
    return Problem(f"no input or weight '{name}'", todo=suggest(name, known) or f"there are: {', '.join(known)}")


class _Masks:
    """Finds the inputs of functions that masks (``OpDef.masks``) are computed from."""

    def __init__(self, module: Module):
        self.module = module
        self.known: dict[str, frozenset[int]] = {}

    def inputs(self, graph: Graph) -> frozenset[int]:
        """Their numbers."""
        if graph.name not in self.known:
            marked: set[Value] = set()
            for node in reversed(graph):
                fixed = self.inputs(self.module.functions[node.attrs["fn"]]) if called(node) else None
                names = OPS[node.op].masks
                through = fixed is None and not cuts(node) and any(v in marked for v in node.results)
                for i, v in enumerate(node.operands):
                    if v is not None and (through or (fixed and i in fixed) or (names and _named(node.op, i) in names)):
                        marked.add(v)
            self.known[graph.name] = frozenset(i for i, v in enumerate(graph.inputs) if v in marked)
        return self.known[graph.name]


def _named(op: str, index: int) -> str:
    operands = OPS[op].signature.operands
    return operands[index].name if index < len(operands) else ""
