"""From a forward module to the joint graph of forward, loss hook and backward."""

from __future__ import annotations

from collections.abc import Sequence

from moec.autodiff.activity import Activity
from moec.autodiff.crossing import Across, Crossing
from moec.autodiff.functions import Functions, prune
from moec.autodiff.loss import PREFIX, losses, seeds
from moec.autodiff.prepare import inline_fused
from moec.autodiff.sides import SEAM
from moec.autodiff.sweep import NAME, Sweep
from moec.autodiff.targets import Options, Targets, targets
from moec.diagnostics import Problem, Refusal, Where
from moec.ir.graph import Graph, Module, Node, Origin, Value
from moec.ops.build import make_node
from moec.ops.registry import OPS

PLAIN = Options()
"""Every float, the only scalar or all outputs, gradients as wide as what they are of, no scaling."""


def differentiate(module: Module, options: Options = PLAIN) -> Module:
    """Turn ``main`` into the joint graph, in place: forward, loss hook, backward. Returns the module.

    Outputs keep their names; behind them come the gradients, ``d_<input>`` then ``d_<weight>``, each of its input's or
    weight's shape. Every value of forward that backward reads stands in one ``save``. Refusal names every op that a
    gradient would have to go through and cannot, and every name that does not fit.
    """
    if any(n.op in SEAM for n in module.nodes()):
        raise Refusal("the module is a training graph already", todo="differentiate the forward module")
    inline_fused(module)
    main = module.main
    chosen = targets(module, options)
    activity = Activity(module, frozenset(chosen.weights), options.weight_dtype)
    functions = Functions(module, activity)
    varied = activity.varied(main, chosen.inputs)
    sweep = Sweep(main, main, varied, functions.call)
    forward = list(main)
    inputs = list(main.inputs)
    hooks = seeds(main, losses(main, options.loss, varied), sweep.tape, options.loss_scale)
    sweep.run(forward, hooks)
    _refuse([*functions.failures, *sweep.failures])
    _return(module, sweep, inputs, chosen, options)
    prune(main, sweep.tape.made)
    made = [n for n in sweep.tape.made if n.graph is main]
    Crossing(main, main, made, main.inputs[len(inputs) :], _across(main)).run()
    _name_saves(main)
    functions.drop_originals()
    return module


def _refuse(failures: Sequence[tuple[Node, str]]) -> None:
    """Refusal with each different reason, how many nodes have it, and the first of them."""
    found: dict[tuple[str, str], list[Node]] = {}
    for node, reason in failures:
        found.setdefault((node.op, reason), []).append(node)
    if found:
        raise Refusal(
            [
                Problem(
                    f"no gradient goes through {op}: {reason} ({len(nodes)} node{'s' if len(nodes) > 1 else ''}, "
                    "this is the last)",
                    Where(node=str(nodes[0].origin)),
                )
                for (op, reason), nodes in found.items()
            ]
        )


def _return(module: Module, sweep: Sweep, inputs: Sequence[Value], chosen: Targets, options: Options) -> None:
    """Return the gradients behind the outputs."""
    main = module.main
    gradients: dict[str, Value] = {}
    for v in inputs:
        gradient = sweep.gradient(v)
        if gradient is not None:
            gradients[v.name] = gradient
    for name in chosen.weights:
        if name in sweep.weights:
            gradients[name] = _unscaled(sweep, sweep.weights[name], options.loss_scale)
    missing = [n for n in options.wrt if n not in gradients]
    taken = [n for n in gradients if PREFIX + n in main.output_names]
    problems = [Problem(f"the loss does not vary with '{n}'", todo="leave it out of --wrt") for n in missing]
    problems += [Problem(f"an output is called '{PREFIX}{n}', as the gradient of '{n}' would be") for n in taken]
    if problems:
        raise Refusal(problems)
    names = [*main.output_names, *(PREFIX + n for n in gradients)]
    main.set_outputs([*main.outputs, *gradients.values()], names)


def _unscaled(sweep: Sweep, gradient: Value, scale: float) -> Value:
    """The gradient of a weight without the loss scale."""
    sweep.tape.origin = Origin((), (NAME,))
    return sweep.tape.scaled(gradient, 1 / scale)


def _across(main: Graph) -> Across:
    """Reads a value of forward through a ``save`` right behind the node that defines it; an input as it is."""

    def across(v: Value) -> Value:
        node = v.producer
        if node is None:
            return v
        origin = Origin(node.origin.sources, (*node.origin.rewrites, NAME))
        return main.insert(make_node("save", [v], {"name": ""}, origin), node.next).result

    return across


def _name_saves(main: Graph) -> None:
    """Name each save after its value, else after the op that makes it (and which of its results), numbered in order."""
    taken: dict[str, int] = {}
    for save in main:
        v = save.operand(0) if save.op == "save" else None
        if v is None or v.producer is None:
            continue
        results = OPS[v.producer.op].signature.results
        which = f".{results[v.index].name}" if len(v.producer.results) == len(results) > 1 else ""
        stem = name = v.name or v.producer.op + which
        while name in taken:
            taken[stem] += 1
            name = f"{stem}.{taken[stem]}"
        taken[name] = 1
        save.attrs["name"] = save.result.name = name
        save.proof = None
