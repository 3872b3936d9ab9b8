"""How far apart two correct evaluations of a graph may lie: what roundings do to it, drawn at random.

An op that is backward stable gives the exact result of operands that are each off by a unit u of the precision it
computes in, and stores that result off by a unit of its dtype. To first order the error of an output is then the sum of
u d_i c_i over all operands read and all results stored, |d_i| <= 1, where c_i says how the output changes with the i-th
of them. Of one contraction the c_i are its terms, and the sum is at most u sum|a_k b_k| (Higham, Accuracy and Stability
of Numerical Algorithms, 2nd edition, section 3.1): little, unless terms cancel, as they do in gradients through a
softmax over one key, which are differences of equal numbers. The c_i of a whole layer are in nobody's hand; evaluating
it in fp64 with d_i drawn gives that sum with the c_i as they are (Monte Carlo arithmetic, Parker 1997), so that what
cancels is judged by what it is a difference of.

Which experts a token goes to may turn on a rounding, and everything behind it with it. So outputs are judged with the
experts that were chosen, and the choice apart: it must be the best one of logits that are off by roundings at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from moec.eval import Evaluator, ranks, run
from moec.eval.binding import Env, concrete
from moec.ir.graph import Module, Node
from moec.ops.registry import OPS
from moec.ops.routing import route

Arrays = Mapping[str, np.ndarray]
UNIT = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}
"""Half of the last place, relative: the largest error of a rounding."""
DRAWS = 3
FACTOR = 4
"""Times the largest error of the draws and of the reference in the declared dtypes: what is allowed."""


@dataclass(frozen=True)
class Judged:
    """Outputs in fp64 by name, and the largest error that one may have at any element."""

    exact: dict[str, np.ndarray]
    allowed: dict[str, float]


def judged(module: Module, inputs: Arrays, weights: Arrays, chosen: np.ndarray) -> Judged:
    """What the outputs must be where tokens go to the experts ``chosen`` [T, K]; that choice is checked first.

    The graph has one ``gating``. Of its logits, roundings make ``off``: the choice must be the best one of logits that
    are ``off`` higher for the chosen experts and as much lower for the others.
    """
    exact = _Drawn(module, weights, chosen)
    want = exact.main(inputs)
    errors = dict.fromkeys(want, 0.0)
    off = 0.0
    rounded = _Drawn(module, weights, chosen, fp64=False)
    for other in (rounded, *(_Drawn(module, weights, chosen, seed) for seed in range(DRAWS))):
        for name, array in other.main(inputs).items():
            error = np.abs(array.astype(np.float64) - want[name]).max(initial=0)
            errors[name] = max(errors[name], float(error))
        off = max(off, float(np.abs(other.logits - exact.logits).max()))
    exact.check(FACTOR * off)
    return Judged(want, {name: FACTOR * e for name, e in errors.items()})


def judged_ranks(module: Module, arrays: Arrays) -> Judged:
    """The same for a layer over ranks, ``arrays`` being inputs and weights; tokens go where fp64 sends them."""
    exact = run(module, arrays, arrays, fp64=True)
    errors = dict.fromkeys(exact, 0.0)
    rounded = run(module, arrays, arrays)
    for other in (rounded, *(_drawn_ranks(module, arrays, seed) for seed in range(DRAWS))):
        for name, array in other.items():
            errors[name] = max(errors[name], float(np.abs(array.astype(np.float64) - exact[name]).max(initial=0)))
    return Judged(exact, {name: FACTOR * e for name, e in errors.items()})


def _drawn_ranks(module: Module, arrays: Arrays, seed: int) -> dict[str, np.ndarray]:
    exactly = ranks._Rank.node
    drawn: dict[int, np.random.Generator] = {}

    def node(self: Any, node: Node, operands: list[np.ndarray | None], env: Env) -> list[np.ndarray]:
        rng = drawn.setdefault(self.rank, np.random.default_rng((seed, self.rank)))
        return _rounded(node, operands, rng, lambda given: exactly(self, node, given, env))

    with mock.patch.object(ranks._Rank, "node", node):
        return run(module, arrays, arrays, fp64=True)


def _rounded(
    node: Node,
    operands: list[np.ndarray | None],
    rng: np.random.Generator | None,
    results: Callable[[list[np.ndarray | None]], list[np.ndarray]],
) -> list[np.ndarray]:
    """What ``results`` makes of operands read off by up to a unit of f32, off by up to one of their dtype."""

    def off(array: np.ndarray | None, unit: float) -> Any:
        if rng is None or not isinstance(array, np.ndarray) or array.dtype != np.float64:
            return array
        return array * (1 + unit * rng.uniform(-1, 1, array.shape))

    op = OPS[node.op]
    if op.cost in ("copy", "view") or "call" in op.traits:  # rounds nothing, or nodes inside do
        return results(operands)
    made = results([off(a, UNIT["f32"]) for a in operands])
    return [off(a, UNIT.get(v.type.dtype.name, 0.0)) for a, v in zip(made, node.results, strict=True)]


class _Drawn(Evaluator):
    """Evaluates in fp64, or with ``fp64=False`` in the declared dtypes. With ``seed``, operands are read off by up to a
    unit of f32, results stored off by up to one of their dtype.
    """

    def __init__(self, module: Module, weights: Arrays, chosen: np.ndarray, seed: int | None = None, fp64: bool = True):
        super().__init__(module, weights, fp64)
        self.chosen = chosen.astype(np.int64)
        self.rng = None if seed is None else np.random.default_rng(seed)
        self.logits = np.empty(0)
        self.bias: np.ndarray | None = None
        self.attrs: dict[str, Any] = {}

    def node(self, node: Node, operands: list[np.ndarray | None], env: Env) -> list[np.ndarray]:
        own = self._routed if node.op == "gating" else super().node
        return _rounded(node, operands, self.rng, lambda given: own(node, given, env))

    def _routed(self, node: Node, operands: list[np.ndarray | None], env: Env) -> list[np.ndarray]:
        """A bias that outweighs all scores makes the choice; weights are scores without it."""
        logits, self.bias = (*(self._computed(a) for a in operands), None)[:2]
        assert logits is not None
        self.logits = logits
        self.attrs = {k: concrete(v, env) for k, v in node.attrs.items()}
        force = np.zeros_like(self.logits)
        np.put_along_axis(force, self.chosen, 1e4 * np.arange(self.chosen.shape[1], 0, -1, force.dtype)[None], axis=1)
        weights, experts = route(self.logits, force, self.attrs)
        counts = np.bincount(experts.ravel(), minlength=self.logits.shape[1])
        return self._bound(node, [weights, experts, counts], env)

    def check(self, off: float) -> None:
        """The experts chosen are the best ones of some logits within ``off`` of these."""
        favoured = self.logits - off
        np.put_along_axis(favoured, self.chosen, np.take_along_axis(self.logits + off, self.chosen, 1), axis=1)
        best = route(favoured, self.bias, self.attrs)[1]
        np.testing.assert_array_equal(
            np.sort(self.chosen, 1), np.sort(best, 1), err_msg=f"experts, where logits are off by at most {off}"
        )
