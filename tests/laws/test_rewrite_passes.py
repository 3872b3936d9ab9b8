"""The mathematical rewrites as passes: values kept in whole layers, prices asked, facts about indices asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moec.diagnostics import NoKernel
from moec.eval import run
from moec.ir.graph import Module
from moec.ir.symbol import evaluate
from moec.ir.text import parse_module, print_module
from moec.ir.types import TensorType
from moec.passes.base import Context, PassManager, Result, parse_passes
from moec.passes.price import price
from moec.target import KernelTime

GOLDEN = Path(__file__).parent.parent / "golden" / "passes"
FOLDERS = (
    "rope-concat-elim",
    "rotate-half-elim",
    "rect-attention",
    "permute-fusion",
    "fuse-norm",
    "fuse-residual",
    "fuse-rope",
    "fuse-swiglu",
)
LAYERS = sorted(p for f in FOLDERS for p in (GOLDEN / f).glob("*.mir"))


def layer(path: Path) -> tuple[Module, str]:
    """The input of a golden case and the passes that it names."""
    text = path.read_text(encoding="utf-8").partition("==== expected\n")[0]
    spec = next(line for line in text.splitlines() if line.startswith("# passes: ")).removeprefix("# passes: ")
    return parse_module(text, path.name), spec


def inputs_of(module: Module, size: int, seed: int) -> dict[str, np.ndarray]:
    """Random operands with every symbol of ``size``."""
    rng = np.random.default_rng(seed)
    env = dict.fromkeys(module.symbols, size)
    found = {}
    for v in module.main.inputs:
        shape = [evaluate(d, env) for d in v.type.dims]
        found[v.name] = rng.integers(0, 4, shape) if v.type.dtype.is_int else rng.normal(size=shape)
    return found


@pytest.mark.parametrize("size", [1, 6])
@pytest.mark.parametrize("path", LAYERS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_values_are_kept(path: Path, size: int) -> None:
    """In whole layers; and, as a compilation with checks does, match by match."""
    (before, spec), (after, _) = layer(path), layer(path)
    PassManager.parse(spec).run(after, Context(witness=lambda module: {}))
    for seed in (0, 1):
        given = inputs_of(before, size, seed)
        old, new = (run(m, given, fp64=True) for m in (before, after))
        assert old.keys() == new.keys()
        for name, a in old.items():
            assert a.shape == new[name].shape and np.allclose(a, new[name], rtol=1e-9, atol=1e-11), name


def apply(text: str, spec: str, context: Context | None = None) -> tuple[Module, Result]:
    """The module after the passes, and what the first did."""
    module = parse_module(text)
    steps = PassManager(parse_passes(spec)).run(module, context)
    return module, steps[0].result


@dataclass
class Priced:
    """A target for which each op takes as many microseconds as told, 1 for others, one of them to launch."""

    us: Mapping[str, float]
    name: str = "toy"

    def estimate(
        self, op: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> KernelTime:
        if op == "unknown" or self.us.get(op) == float("inf"):
            raise NoKernel(f"op '{op}' has no kernel")
        return KernelTime(op, "toy", 1, 0, self.us.get(op, 1.0), 0.5, 0.0, "toy", 0, 0)


REPEATED = """
func main(%x: f32[4, 8], %s: f32[8]) -> (y: f32[8, 8]) {
  %order = argsort(%s) {axis = 0, descending = false} : i64[8]
  %0 = reshape(%x) {shape = [4, 1, 8]} : f32[4, 1, 8]
  %1 = expand(%0) {shape = [4, 2, 8]} : f32[4, 2, 8]
  %2 = reshape(%1) {shape = [8, 8]} : f32[8, 8]
  %3 = gather(%2, %order) {axis = 0} : f32[8, 8]
  return %3
}
"""


def test_a_rewrite_that_is_slower_is_a_near_miss_with_both_prices() -> None:
    """An expansion (asked for as a tile) of 0.75 and gather 1 become gather 1 and div 1 us."""
    module, result = apply(REPEATED, "permute-fusion", Context(Priced({"tile": 0.75})))
    assert not result.applied and "div" not in {n.op for n in module.main}
    (miss,) = result.near_misses
    assert miss.rule == "gather-of-repeat"
    assert miss.reason == "on toy it would take 2.0 us, and takes 1.8 us as it is"


@pytest.mark.parametrize("us", [{"tile": 1.25}, {"tile": 0.25, "gather": float("inf")}])
def test_a_rewrite_is_applied_where_it_is_faster_or_nobody_knows(us: dict[str, float]) -> None:
    assert apply(REPEATED, "permute-fusion", Context(Priced(us)))[1].counts() == {"gather-of-repeat": 1}


def test_sizes_that_are_not_known_have_no_price() -> None:
    symbolic = "symbol T in [1, 64]\n" + REPEATED.replace("4,", "T,").replace("[8]", "[2*T]").replace("[8,", "[2*T,")
    context = Context(Priced({"tile": 0.75}))
    assert apply(symbolic, "permute-fusion", context)[1].counts() == {"gather-of-repeat": 1}
    assert not apply(symbolic, "permute-fusion", Context(context.target, {"T": 4}))[1].applied


def test_row_wise_nodes_are_priced_as_one_kernel() -> None:
    """Two kernels of 10 us launch and 20 us of work; fused, one launch, and each moves 2 of its 3 tensors."""

    class Target:
        name = "toy"

        def estimate(self, op: str, *rest: object) -> KernelTime:
            return KernelTime(op, "toy", 1, 0, 30.0, 10.0, 0.0, "toy", 0, 0)

    text = """
func main(%x: f32[4, 8], %y: f32[4, 8], %z: f32[4, 8]) -> (a: f32[4, 8]) {
  %0 = add(%x, %y) : f32[4, 8]
  %1 = mul(%0, %z) : f32[4, 8]
  return %1
}
"""
    nodes = list(parse_module(text).main)
    context = Context(Target())
    assert price(nodes[:1], context) == price(nodes[1:], context) == 30.0
    assert price(nodes, context) == pytest.approx(10 + 2 * 20 * 2 / 3)
    assert price(nodes, Context()) is None


def test_shared_copies_count_by_their_readers() -> None:
    """Two attentions read one concatenation of 4 us, half of which each saves: the new attention may cost 2 more."""
    text = """
func main(%a: {W}, %b: {N}, %c: {W}, %d: {N}, %v: {W}) -> (y: {W}, z: {W}) {
  %0 = concat(%a, %b) {axis = 3} : f32[2, 4, 3, 10]
  %1 = concat(%c, %d) {axis = 3} : f32[2, 4, 3, 10]
  %2 = attention(%0, %1, %v) {A} : {W}
  %3 = attention(%1, %0, %v) {A} : {W}
  return %2, %3
}
"""
    attrs = 'scale = 0.25, causal = true, offset = 0, window = none, softcap = none, empty_rows = "zero"'

    class Target(Priced):
        def estimate(self, op: str, operands: Sequence[TensorType | None], attrs: Any, sizes: Any) -> KernelTime:
            extra = self.us["apart"] if op == "attention" and len(operands) == 7 and operands[6] is not None else 0
            return KernelTime(op, "toy", 1, 0, self.us.get(op, 1.0) + extra, 0.5, 0.0, "toy", 0, 0)

    for apart, wanted in ((3.5, 2), (4.5, 0)):
        context = Context(Target({"concat": 4.0, "apart": apart}))
        filled = (
            text.replace("{A}", "{" + attrs + "}").replace("{W}", "f32[2, 4, 3, 8]").replace("{N}", "f32[2, 4, 3, 2]")
        )
        _, result = apply(filled, "rope-concat-elim", context)
        assert result.counts().get("rope-concat", 0) == wanted


MASK = (GOLDEN / "permute-fusion" / "mask.mir").read_text(encoding="utf-8").partition("==== expected\n")[0]


def test_a_map_of_choices_that_may_be_equal_keeps_its_size() -> None:
    """Choices that a caller gives may repeat within a token, so the size is the run's to tell."""
    text = MASK.replace("%scores: f32[T, 4])", "%e: i64[T, 2])")
    text = "\n".join(line for line in text.splitlines() if "topk" not in line)
    module, result = apply(text, "permute-fusion")
    assert not result.applied and "n" in module.symbols
    assert "may be equal" in result.near_misses[0].reason


def test_the_size_of_a_map_is_replaced_everywhere() -> None:
    module, _ = apply(MASK, "permute-fusion,canonicalise,dce")
    assert "n" not in module.symbols
    assert str(module.main.outputs[0].type) == "f32[2*T, 8]"
    text = print_module(module)
    assert print_module(parse_module(text)) == text


JOINT = """
symbol S in [1, 4096]

func main(%a: {W}, %b: {N}, %c: {W}, %d: f32[2, 1, S, 2], %v: {W}) -> (y: {W}) {
  %qn = tanh(%a) : {W}
  %qr = tanh(%b) : {N}
  %kn = tanh(%c) : {W}
  %kr = tanh(%d) : f32[2, 1, S, 2]
  %0 = concat(%qn, %qr) {axis = 3} : f32[2, 4, S, 10]
  %1 = expand(%kr) {shape = [2, 4, S, 2]} : f32[2, 4, S, 2]
  %2 = concat(%kn, %1) {axis = 3} : f32[2, 4, S, 10]
  %3 = attention(%0, %2, %v) {A} : {W}
  return %3
}
"""


@pytest.mark.parametrize(
    "spec", ["rope-concat-elim,dce,autodiff,canonicalise,dce", "autodiff,rope-concat-elim,canonicalise,dce"]
)
def test_backward_has_no_slices_whichever_came_first(spec: str) -> None:
    """Differentiated before or after the rewrite: gradients come in parts, the shared key's summed over the heads."""
    attrs = '{scale = 0.25, causal = true, offset = 0, window = none, softcap = none, empty_rows = "zero"}'
    text = JOINT.replace("{A}", attrs).replace("{W}", "f32[2, 4, S, 8]").replace("{N}", "f32[2, 4, S, 2]")
    plain, module = parse_module(text), parse_module(text)
    PassManager.parse("autodiff").run(plain)
    PassManager.parse(spec).run(module)
    ops = [n.op for n in module.main]
    assert not {"concat", "slice", "expand", "reduce_sum"}.intersection(ops)
    grad = next(n for n in module.main if n.op == "attention_grad")
    assert str(grad.results[5].type) == "f32[2, 1, S, 2]"
    given = inputs_of(plain, 5, 0)
    old, new = (run(m, given, fp64=True) for m in (plain, module))
    assert old.keys() == new.keys() and all(np.allclose(old[n], new[n], rtol=1e-9, atol=1e-11) for n in old)
