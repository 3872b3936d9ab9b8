"""Cases of fault injection for the kernels of the cube, and for attention's of cube and vector cores together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from ascend_run import programs_of
from attention_layers import SEQUENCES, Net, arrays_of, program, with_gradient
from injection_cases import Case
from vector_run import numbers

from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import Kernel
from moec.codegen.kernels.grouped import Grouped, grouped_matmul_kernel
from moec.codegen.kernels.grouped_dw import GroupedDW, grouped_dw_kernel
from moec.codegen.kernels.matmul import Product, Repeat, matmul_kernel
from moec.codegen.kernels.vector.parts import UNIT, parts_kernel
from moec.codegen.scalar import Env, evaluate
from moec.codegen.tile import CubeTile

CAPS = Capacities(aic=2, aiv=2)
BASE = CubeTile(32, 32, 64, 32, 2)
DEEP = CubeTile(32, 32, 128, 32, 2, 64)
Sizes = Mapping[str, int]


def cube_case(
    name: str, kernels: Callable[[], list[Kernel]], sizes: Sequence[Sizes], counts: Sequence[Sequence[int]] = ()
) -> Case:
    """Kernels with inputs of their shapes at each of ``sizes``, with the experts' ``counts`` where they take any."""

    def runs(rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
        made = []
        for i, at in enumerate(sizes):
            arrays = {}
            for kernel in kernels():
                for p in kernel.params:
                    if p.direction == "out":
                        continue
                    shape = tuple(int(evaluate(d, Env({}, at, {}))) for d in p.shape)
                    if p.role == "counts":
                        arrays[f"{kernel.name}.{p.name}"] = np.array(counts[i], np.int32)
                    elif p.role == "source":
                        arrays[f"{kernel.name}.{p.name}"] = rng.integers(0, at["R"], shape).astype(np.int32)
                    elif p.direction == "inout":
                        arrays[f"{kernel.name}.{p.name}"] = 0 * numbers(rng, shape, p.dtype)
                    else:
                        arrays[f"{kernel.name}.{p.name}"] = numbers(rng, shape, p.dtype)
            made.append(arrays)
        return made

    return Case(name, lambda: programs_of(kernels(), 2), runs, dict(sizes[0]) if len(sizes) == 1 else {})


def matmuls() -> list[Kernel]:
    def made(name: str, tile: CubeTile, p: Product) -> Kernel:
        return matmul_kernel(name, CAPS, tile, p)

    plain = Product(None, 64, 160, 1, "f32", "f32")
    return [
        made("mm", BASE, plain),
        made("mm_by_k", replace(BASE, c_slots=1), replace(plain, b_by_k=True)),
        made("mm16_by_k", BASE, replace(plain, dtype="f16", b_by_k=True)),
        made("mm_a_by_k", BASE, replace(plain, dtype="bf16", out="bf16", a_by_k=True)),
        made("mm_batch", BASE, replace(plain, n=40, batch=3, b_repeat=Repeat(1, 1))),
    ]


def choices() -> list[Kernel]:
    product = Product(None, 150, 300, 1, "f16", "f32")
    tiles = {
        "deep_a": replace(BASE, k1=128, k1b=64),
        "unit": replace(BASE, unit=True),
        "keep_a": replace(BASE, keep="a", k1=304, k1b=64, block_n=96),
        "keep_b": replace(BASE, keep="b", k1b=304, block_m=96, panel=2),
        "all": CubeTile(32, 32, 128, 32, 1, 64, 2, 64, 64, 2, True, True, True),
    }
    return [matmul_kernel(name, CAPS, tile, product) for name, tile in tiles.items()]


def split() -> list[Kernel]:
    tile = replace(BASE, splits=3)
    return [
        matmul_kernel("part", CAPS, tile, Product(None, 40, None, 1, "f16", "f32", True, 4096)),
        parts_kernel("sum", CAPS, 3, None, None, "bf16", 1 << 20),
    ]


def grouped() -> list[Kernel]:
    kept = replace(BASE, keep="a", k1=160, k1b=32, block_n=64, diagonal=True, stagger=True)
    return [
        grouped_matmul_kernel("gmm", CAPS, BASE, Grouped(3, 64, 160, "bf16", "f32")),
        grouped_matmul_kernel("gmm_kept", CAPS, kept, Grouped(3, 64, 160, "bf16", "f32")),
        grouped_matmul_kernel("gmm32", CAPS, BASE, Grouped(3, 64, 160, "f32", "f32", by_k=True)),
    ]


def gathered() -> list[Kernel]:
    return [
        grouped_matmul_kernel("gmm", CAPS, DEEP, Grouped(3, 64, 288, "bf16", "f32", gathered_hi=1000)),
        grouped_dw_kernel("dw", CAPS, BASE, GroupedDW(3, 64, 288, "f32", "f32", gathered_hi=1000)),
    ]


def weights() -> list[Kernel]:
    return [
        grouped_dw_kernel("dw", CAPS, BASE, GroupedDW(3, 64, 96, "bf16", "f32")),
        grouped_dw_kernel("dw32", CAPS, BASE, GroupedDW(3, 40, 90, "f32", "f32")),
    ]


def attention_case(name: str, net: Net, kind: str, sizes: Sequence[tuple[int, int, int]]) -> Case:
    """``kind``: forward, grad or mask (the gradient by the mask)."""

    def runs(rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
        made = []
        for batch, queries, keys in sizes:
            a = arrays_of(net, batch, queries, keys, rng)
            if kind != "forward":
                a = with_gradient(net, a, rng)
            if kind == "mask":
                a = {n: v for n, v in a.items() if n != "sinks"}
            made.append({f"x_{n}": v for n, v in a.items()})
        return made

    known = {"C": SEQUENCES + 1, "T": 0} if net.packed else {}
    return Case(f"attention{'' if kind == 'forward' else ', gradient'}: {name}",
                lambda: program({"x": net}, kind != "forward", by_mask=kind == "mask"), runs, known)  # fmt: skip


FORWARD = [(1, 5, 7), (2, 100, 150), (3, 1, 1)]
BACKWARD = [(1, 5, 7), (2, 170, 150), (3, 1, 1), (2, 192, 192)]
PLAIN = Net("bf16", 2, 1, 64, 64, causal=True)
EVERYTHING = Net("f16", 2, 2, 48, 24, True, 70, 8.0, sinks="f16", rope=(16, 1), stats=True)
MASKED = Net("f32", 2, 2, 24, 16, mask=("bool", "B, 1, S, T"))
ADDED = Net("bf16", 2, 2, 64, 64, causal=True, mask=("bf16", "2, S, T"))
PACKED = Net("bf16", 2, 1, 40, 24, causal=True, packed=True, stats=True)

CUBE = [
    cube_case("matmul: layouts, batches, types", matmuls, [{"M": 3}, {"M": 200}]),
    cube_case("matmul: choices of the tile", choices, [{"M": 3}, {"M": 200}]),
    cube_case("matmul: split K, sum of parts", split, [{"M": 70, "K": 3 * UNIT - 20, "n": 90000}]),
    cube_case("grouped matmul", grouped, [{"S": 5}, {"S": 170}], [(0, 0, 5), (100, 0, 70)]),
    cube_case(
        "grouped matmul: gathered rows", gathered, [{"S": 5, "R": 3}, {"S": 220, "R": 90}], [(0, 0, 5), (150, 0, 70)]
    ),
    cube_case("grouped matmul: gradient of weights", weights, [{"S": 5}, {"S": 220}], [(0, 0, 5), (150, 0, 70)]),
    attention_case("causal", PLAIN, "forward", FORWARD),
    attention_case("window, softcap, sinks, rope parts", EVERYTHING, "forward", FORWARD),
    attention_case("mask of booleans", MASKED, "forward", FORWARD),
    attention_case("packed sequences", PACKED, "forward", [(1, 7, 7), (2, 127, 127), (1, 320, 320)]),
    attention_case("causal", PLAIN, "grad", BACKWARD),
    attention_case(
        "window, softcap, sinks, rope parts", replace(EVERYTHING, stats=False), "grad", [*BACKWARD, (1, 2053, 1)]
    ),
    attention_case("packed sequences", replace(PACKED, stats=False), "grad", [(1, 7, 7), (2, 127, 127), (1, 320, 320)]),
    attention_case("by the mask", ADDED, "mask", [(2, 5, 7), (2, 170, 150)]),
]
