"""What rewrites gain on the modelled NPU, beside what was published of them.

    python benchmarks/rewrites.py [--target ascend910b1] [--only attention|dispatch|gather]

*Attention*: one rank of Pangu Ultra MoE (16 heads of 8192 positions, query and key 128 + 64 wide, values 128), causal;
with the halves of queries and keys joined by copies, the shared rotary key spread over heads, and values padded to 192
and cut back (as a kernel that wants equal widths has it), against the form that takes all parts as they are.
*Dispatch*: 2048 tokens of 7680, 8 experts each of 256: two sorts, a repeat, a row gather, a gather back, a product with
the routing weights and a sum, against sort and gather in one kernel and a weighted sum in one.

*Gather*: rows that are sorted for one grouped product, against the product that gathers them (``gather-rows``), for
numbers of tokens, models and dtypes; nothing is published of it. The last column is what backward then keeps less.

Each form is priced node by node, launches included; backward is what moec derives of each form.
"""

from __future__ import annotations

import argparse

from moec.autodiff import backward_nodes, differentiate
from moec.driver import load_target
from moec.frontend.dsl import parse_moe
from moec.ir.graph import Module
from moec.passes.base import Context, PassManager, parse_passes
from moec.passes.node_price import TargetPrices

ATTENTION = """
dim B in [1, 8] = 2
dim S in [1, 16384] = 8192
input q_n: bf16[B, 16, S, 128], q_r: bf16[B, 16, S, 64], k_n: bf16[B, 16, S, 128], k_r: bf16[B, 1, S, 64],
      v: bf16[B, 16, S, 128]
q = concat(q_n, q_r, axis = -1)
k = concat(k_n, expand(k_r, shape = [B, 16, S, 64]), axis = -1)
wide = pad(v, before = [0, 0, 0, 0], after = [0, 0, 0, 64], value = 0.0)
y = attention(q, k, wide, scale = 192 ** -0.5, causal = true, offset = 0, window = none, softcap = none,
              empty_rows = "zero")
output out = y[..., :128]
"""

DISPATCH = """
dim T in [1, 16384] = 2048
input x: bf16[T, 7680], experts: i32[T, 8], weights: bf16[T, 8]
flat = reshape(experts, shape = [8*T])
order = argsort(flat, axis = 0, descending = false)
back = argsort(order, axis = 0, descending = false)
many = reshape(expand(reshape(x, shape = [T, 1, 7680]), shape = [T, 8, 7680]), shape = [8*T, 7680])
rows = gather(many, order, axis = 0)
home = reshape(gather(rows, back, axis = 0), shape = [T, 8, 7680])
y = reduce_sum(home * reshape(weights, shape = [T, 8, 1]), axes = [1], keepdims = false)
output y
"""

FUSED = """
dim T in [1, 16384] = 2048
input x: bf16[T, 7680], experts: i32[T, 8], weights: bf16[T, 8], counts: i32[256]
rows, positions = permute(x, experts, counts)
output y = unpermute(rows, positions, weights)
"""


SORTED = """
dim T in [1, 16384] = 2048
input x: {dtype}[T, {hidden}], experts: i32[T, {k}], counts: i32[{experts}], up: {dtype}[{experts}, {width}, {hidden}]
rows, positions = permute(x, experts, counts)
h = grouped_matmul(rows, up, counts)
output y = unpermute(h, positions)
"""

MODELS = (
    ("Pangu Ultra, a rank", 7680, 4096, 8, 1), ("Pangu Ultra", 7680, 4096, 256, 8), ("DeepSeek-V3", 7168, 4096, 256, 8),
    ("Qwen3-235B", 4096, 3072, 128, 8), ("Qwen3-30B", 2048, 1536, 128, 8), ("small", 1024, 1024, 32, 4),
)  # fmt: skip
"""Name, hidden, width of the first product, experts and choices of a token."""
TOKENS = (1, 16, 128, 1024, 8192)


def gather(target: str) -> None:
    """A line for each model, number of tokens and dtype."""
    print(
        f"{'rows of':22}{'dtype':>6}{'tokens':>8}{'laid out us':>14}{'gathered us':>14}{'change':>9}{'saved MiB':>11}"
    )
    for name, hidden, width, experts, k in MODELS:
        for dtype, size in (("bf16", 2), ("f32", 4)):
            for tokens in TOKENS:
                text = SORTED.format(dtype=dtype, hidden=hidden, width=width, experts=experts, k=k)
                sizes = {"T": tokens}
                old, new = (times(made(text, passes, target, sizes, False), target, sizes)[0] for passes in ("", FOLD))
                saved = tokens * (k * hidden * size - hidden * size - 4 * k) / 2**20
                change = 100 * (new / old - 1)
                print(f"{name:22}{dtype:>6}{tokens:8}{old:14.1f}{new:14.1f}{change:+8.1f} %{saved:10.1f}", flush=True)


FOLD = "gather-rows{always=true}"


def times(module: Module, target_name: str, sizes: dict[str, int]) -> tuple[float, float]:
    """Microseconds of forward and backward, node by node."""
    target = load_target(target_name)
    prices = TargetPrices(module, target, sizes, compiled=True)
    behind = backward_nodes(module.main)
    free = ("constant", "weight", "save", "seed", "dims")
    priced = [(n in behind, prices.device(n)) for n in module.main if n.op not in free]
    assert not prices.unpriced, prices.unpriced
    return sum(us for side, us in priced if not side), sum(us for side, us in priced if side)


def made(text: str, passes: str, target: str, sizes: dict[str, int], train: bool) -> Module:
    """The module of ``text`` after ``passes``, differentiated before the last group where ``train``."""
    module = parse_moe(text)
    context = Context(load_target(target), sizes)
    if passes:
        PassManager(parse_passes(passes)).run(module, context)
    if train:
        differentiate(module)
        PassManager(parse_passes("canonicalise,cse,dce,fuse-vector,inline,dce")).run(module, context)
    return module


def show(name: str, before: tuple[float, float], after: tuple[float, float], published: str) -> None:
    """A line for each direction."""
    for side, old, new in zip(("forward", "backward"), before, after, strict=True):
        if old and new:
            print(f"{name:10} {side:9} {old:10.1f} us -> {new:10.1f} us  {100 * (old / new - 1):+7.1f} % faster")
    print(f"{'':10} published: {published}")


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="ascend910b1")
    parser.add_argument("--only", choices=("attention", "dispatch", "gather"), help="one of the sections")
    options = parser.parse_args()
    target = options.target
    for section, run in (("attention", attention), ("dispatch", dispatch), ("gather", gather)):
        if options.only in (None, section):
            run(target)


def attention(target: str) -> None:
    """Attention's two forms, forward and backward."""
    sizes = {"B": 2, "S": 8192}
    before = times(made(ATTENTION, "", target, sizes, True), target, sizes)
    after = times(made(ATTENTION, "rect-attention,rope-concat-elim,cse,dce", target, sizes, True), target, sizes)
    show("attention", before, after, "forward +50 %, backward +30 % (shape not given)")


def dispatch(target: str) -> None:
    """Dispatch's two forms, forward and backward."""
    sizes = {"T": 2048}
    before = times(made(DISPATCH, "", target, sizes, True), target, sizes)
    after = times(made(FUSED, "", target, sizes, True), target, sizes)
    show("dispatch", before, after, "more than 3 times")


if __name__ == "__main__":
    main()
