"""Strided copies on the CPU model against the numpy reference: every op that only moves, dtypes, sizes and zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_moves import module, same, unsynchronised, values
from vector_run import ORDERS, Layer

GIVEN = "%x: D[2, T, 9], %z: D[2, T, 2], %c: D[2, T, 1], %r: D[1, T, 9], %o: D[9]"


def slices(d: str) -> list[tuple[str, str]]:
    return [
        ("slice(%x) {axis = 2, start = 3, stop = 8, step = 1}", f"{d}[2, T, 5]"),
        ("slice(%x) {axis = 2, start = 1, stop = 9, step = 3}", f"{d}[2, T, 3]"),
        ("slice(%x) {axis = 0, start = 1, stop = 2, step = 1}", f"{d}[1, T, 9]"),
        ("slice(%x) {axis = 2, start = 4, stop = 5, step = 1}", f"{d}[2, T, 1]"),
        ("concat(%x, %z, %x) {axis = 2}", f"{d}[2, T, 20]"),
        ("concat(%x, %x) {axis = 0}", f"{d}[4, T, 9]"),
        ("concat(%z, %z) {axis = 1}", f"{d}[2, 2*T, 2]"),
        ("transpose(%x) {perm = [1, 0, 2]}", f"{d}[T, 2, 9]"),
        ("transpose(%x) {perm = [0, 2, 1]}", f"{d}[2, 9, T]"),
        ("transpose(%x) {perm = [2, 1, 0]}", f"{d}[9, T, 2]"),
        ("pad(%x) {before = [0, 1, 2], after = [1, 0, 3], value = 0.0}", f"{d}[3, T + 1, 14]"),
        ("tile(%x) {repeats = [1, 2, 3]}", f"{d}[2, 2*T, 27]"),
        ("expand(%c) {shape = [2, T, 6]}", f"{d}[2, T, 6]"),
        ("expand(%r) {shape = [5, T, 9]}", f"{d}[5, T, 9]"),
        ("expand(%o) {shape = [5, T, 9]}", f"{d}[5, T, 9]"),
    ]


SWEPT = [pytest.param(d, marks=pytest.mark.slow) for d in ("bf16", "i64", "bool")]


@pytest.mark.parametrize("dtype", ["f32", *SWEPT])
def test_every_move(tmp_path: Path, dtype: str) -> None:
    layer = Layer(module(GIVEN.replace("D", dtype), slices(dtype)), tmp_path)
    rng = np.random.default_rng(0)
    for i, t in enumerate((0, 1, 5, 126, 127, 1300)):
        shapes = {"x": (2, t, 9), "z": (2, t, 2), "c": (2, t, 1), "r": (1, t, 9), "o": (9,)}
        same(layer, {n: values(rng, s, dtype) for n, s in shapes.items()}, MOEC_CPU_ORDER=ORDERS[i % 3])


def test_a_fused_constant_needs_no_operand(tmp_path: Path) -> None:
    body = "  %k = constant() {value = dense<f32[]: [2.5]>} : f32[]\n  %e = expand(%k) {shape = [T, 5]} : f32[T, 5]\n"
    called = module("%x: f32[T]", [('fused() {fn = "f"}', "f32[T, 5]")])
    head, main = called.split("\n", 1)
    layer = Layer(f"{head}\nfunc f() -> (y: f32[T, 5]) {{\n{body}  return %e\n}}\n{main}", tmp_path)
    for t in (0, 1, 127):
        same(layer, {"x": np.zeros(t, np.float32)})


def test_kernels_are_synchronised_for_every_size() -> None:
    assert not unsynchronised(module(GIVEN.replace("D", "f32"), slices("f32")))
