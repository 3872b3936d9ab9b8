"""The cleaning passes on random graphs of views, casts, constants, arithmetic: values kept, a fixpoint, any order."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from moec import eval as reference
from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Value
from moec.ir.text import parse_module, print_module
from moec.ir.types import BF16, BOOL, F32, F64, I32, I64, DType, TensorType
from moec.ops.build import Builder
from moec.passes.base import PassManager

CLEAN = "canonicalise,fold,canonicalise,cse,dce"
SEEDS = range(60)


class RandomGraph:
    """Builds a graph of ``size`` random nodes; half of them undo or repeat the one before, so that rules fire."""

    def __init__(self, seed: int, size: int = 30):
        self.rng = np.random.default_rng(seed)
        self.module = Module()
        self.graph = self.module.add(Graph("main"))
        self.b = Builder(self.graph)
        shapes = [(2, 6), (6,), (1, 6), (2, 1), (2, 3, 2)]
        self.values: list[Value] = [self.graph.add_input(f"x{i}", TensorType(F32, s)) for i, s in enumerate(shapes)]
        self.values.append(self.graph.add_input("n", TensorType(I64, (2, 6))))
        self.values.append(self.graph.add_input("c", TensorType(BOOL, (2, 6))))
        moves: list[Callable[[Value], Value | None]] = [
            self.view,
            self.transposed,
            self.sliced,
            self.cast,
            self.constant,
            self.unary,
            self.binary,
            self.joined,
            self.power,
            self.selected,
            self.reduced,
        ]
        for _ in range(size):
            made = moves[self.number(len(moves))](self.pick())
            if made is not None:
                self.values.append(made)
        outputs = [self.values[-1], self.pick(), self.pick()]
        self.graph.set_outputs(outputs, ["a", "b", "d"])

    def number(self, below: int) -> int:
        return int(self.rng.integers(below))

    def pick(self) -> Value:
        """A value, later ones more often."""
        return self.values[-1 - min(self.number(len(self.values)), self.number(len(self.values)))]

    def view(self, x: Value) -> Value:
        count = int(np.prod([int(d) for d in x.type.dims], dtype=int))  # type: ignore[call-overload]
        targets = [x.type.dims, (count,), (1, count), *([(2, count // 2)] if count % 2 == 0 else [])]
        made: Value = self.b.reshape(x, shape=targets[self.number(len(targets))])
        return made

    def transposed(self, x: Value) -> Value:
        perm = tuple(int(i) for i in self.rng.permutation(x.type.rank))
        made: Value = self.b.transpose(x, perm=perm)
        if self.number(2):
            made = self.b.transpose(made, perm=tuple(int(i) for i in np.argsort(perm)))
        return made

    def sliced(self, x: Value) -> Value | None:
        if x.type.rank == 0:
            return None
        axis = self.number(x.type.rank)
        size = int(x.type.dims[axis])  # type: ignore[arg-type]
        start = self.number(size)
        stop = start + 1 + self.number(size - start)
        pieces = [(0, size)] if self.number(3) == 0 else [(start, stop)]
        made: Value = self.b.slice(x, axis=axis, start=pieces[0][0], stop=pieces[0][1], step=1)
        return made

    def cast(self, x: Value) -> Value:
        to = self.among(F32, BF16, F64, I32, I64, BOOL)
        made: Value = self.b.cast(x, to=to)
        return self.b.cast(made, to=x.type.dtype) if self.number(2) else made

    def among(self, *options: DType) -> DType:
        return options[self.number(len(options))]

    def constant(self, x: Value) -> Value | None:
        if x.type.dtype is BOOL:
            return None
        number = [0.0, -0.0, 1.0, 2.0, -1.0][self.number(5)]
        c = self.b.constant(value=ArrayData(np.array(number).astype(x.type.dtype.carrier), x.type.dtype))
        op = ["add", "sub", "mul", "div"][self.number(4)]
        if op == "div" and (x.type.dtype.is_int or number == 0):
            return None
        pair = (x, c) if self.number(2) or op == "div" else (c, x)
        made: Value = getattr(self.b, op)(*pair)
        return made

    def unary(self, x: Value) -> Value:
        if x.type.dtype is BOOL:
            made: Value = getattr(self.b, "not")(x)
            return getattr(self.b, "not")(made) if self.number(2) else made
        if x.type.dtype.is_float and self.number(2):
            gate: Value = self.b.sigmoid(x)
            return self.b.mul(gate, x) if self.number(2) else gate
        made = self.b.neg(x)
        return self.b.neg(made) if self.number(2) else made

    def binary(self, x: Value) -> Value | None:
        others = [v for v in self.values if v.type == x.type]
        other = others[self.number(len(others))]
        if x.type.dtype is BOOL:
            made: Value = getattr(self.b, ["and", "or", "xor"][self.number(3)])(x, other)
            return made
        if self.number(3) == 0 and x.type.dims == (2, 6):
            rows = [v for v in self.values if v.type.dtype is x.type.dtype and v.type.dims in ((6,), (1, 6), (2, 1))]
            if rows:
                other = self.b.expand(rows[self.number(len(rows))], shape=(2, 6))
        return getattr(self.b, ["add", "mul", "maximum", "minimum", "sub"][self.number(5)])(x, other)

    def joined(self, x: Value) -> Value | None:
        if x.type.rank == 0 or int(x.type.dims[-1]) < 2:  # type: ignore[arg-type]
            return None
        axis, size = x.type.rank - 1, int(x.type.dims[-1])  # type: ignore[arg-type]
        at = 1 + self.number(size - 1)
        lo, hi = (self.b.slice(x, axis=axis, start=s, stop=e, step=1) for s, e in ((0, at), (at, size)))
        made: Value = self.b.concat(*((lo, hi) if self.number(3) else (hi, lo)), axis=axis)
        return made

    def power(self, x: Value) -> Value | None:
        if not x.type.dtype.is_float:
            return None
        c = self.b.constant(
            value=ArrayData(np.array(float(1 + self.number(3))).astype(x.type.dtype.carrier), x.type.dtype)
        )
        made: Value = self.b.pow(self.b.tanh(x), c)
        return made

    def selected(self, x: Value) -> Value:
        cond = self.b.constant(value=ArrayData(np.array(bool(self.number(2)))))
        made: Value = self.b.select(cond, x, x if self.number(2) else self.unary(x))
        return made

    def reduced(self, x: Value) -> Value | None:
        if x.type.rank == 0 or x.type.dtype is BOOL:
            return None
        op = ["reduce_sum", "reduce_max", "reduce_min"][self.number(3)]
        made: Value = getattr(self.b, op)(x, axes=(self.number(x.type.rank),), keepdims=bool(self.number(2)))
        return made


def outputs(module: Module, fp64: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    given = {}
    for v in module.main.inputs:
        shape = [int(d) for d in v.type.dims]  # type: ignore[arg-type]
        given[v.name] = (
            rng.normal(0, 1, shape).astype(v.type.dtype.carrier) if v.type.dtype.is_float else rng.integers(0, 2, shape)
        )
    with np.errstate(all="ignore"):
        return reference.run(module, given, fp64=fp64)


def same(old: np.ndarray, new: np.ndarray, tolerance: float) -> bool:
    if old.dtype.kind in "iub":
        return bool(np.array_equal(old, new))
    a, b = old.astype(np.float64), new.astype(np.float64)
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_rules_keep_every_bit(seed: int) -> None:
    before, after = RandomGraph(seed).module, RandomGraph(seed).module
    PassManager.parse(CLEAN.replace("canonicalise", "canonicalise{exact_only=true}")).run(after)
    old, new = outputs(before, False), outputs(after, False)
    for name in old:
        assert old[name].dtype == new[name].dtype and old[name].shape == new[name].shape
        nan = (old[name] != old[name]) & (new[name] != new[name])
        bits = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[old[name].dtype.itemsize]
        assert np.all((np.atleast_1d(old[name]).view(bits) == np.atleast_1d(new[name]).view(bits)) | np.atleast_1d(nan))


@pytest.mark.parametrize("seed", SEEDS)
def test_all_rules_keep_values_and_reach_a_fixpoint(seed: int) -> None:
    before, after = RandomGraph(seed).module, RandomGraph(seed).module
    PassManager.parse(CLEAN).run(after)
    rounds = any(n.op == "cast" and n.attrs["to"].name != "f64" for n in before.nodes())
    for fp64 in (True, False):
        old, new = outputs(before, fp64), outputs(after, fp64)
        for name in old:
            if rounds and before.main.outputs[list(old).index(name)].type.dtype.is_int:
                continue  # a float that is rounded once less may truncate to another integer
            assert same(old[name], new[name], 1e-9 if fp64 and not rounds else 0.05), (name, fp64)
    text = print_module(after)
    PassManager.parse(CLEAN).run(after)
    assert print_module(after) == text
    assert print_module(parse_module(text)) == text


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_the_cleaning_passes_does_not_matter_at_the_fixpoint(seed: int) -> None:
    """Any order, run until nothing changes, keeps the same number of nodes."""
    counts = set()
    for order in itertools.permutations(["canonicalise", "fold", "cse", "dce"]):
        module = RandomGraph(seed).module
        manager = PassManager.parse(",".join(order))
        for _ in range(6):
            manager.run(module)
        counts.add(len(module.main))
    assert len(counts) == 1
