"""Calls and bytes counted by hand for writers of kernels that test_family_counts does not reach, beside those that the
CPU model, the kernel IR and the cycle model count.

As there: 3 rows of 8 f32 (96 bytes) on one vector core. What is written down of each kernel is (copies, bytes) of MTE2,
MTE3 and FIX, and the calls that do the work.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import kernel_writers
import numpy as np
import pytest
from ascend_run import built
from counted import disagreements, integers, run_counted
from injection_cases import FULL, lowered
from injection_counts import bared
from vector_run import Layer

from moec.codegen import builder
from moec.codegen.kernel_ir import Kernel
from moec.ir.text import parse_module

ROWS, WIDE, ROPE = "f32[T, 8]", "f32[1, 2, T, 16]", "f32[1, 2, T, 8]"
SUM = "f32[1, 2, T]"
GATED = '{activation = "silu", glu = "interleaved", alpha = 1.0, limit = none, up_offset = 0.0}'
ATTENTION = '{scale = 0.25, causal = false, offset = 0, window = none, softcap = none, empty_rows = "zero"}'
DEEP = 32768
Hand = dict[str, tuple[int, int] | int]
CASES: list[tuple[str, str, dict[str, Hand]]] = [
    # two experts have rows; each weight is 8 by 8
    (
        "grouped_matmul(%x, %q, %c) {transpose_weight = true}",
        ROWS,
        {"grouped_matmul": {"MTE2": (4, 96 + 512), "M Mmad": 2, "mnk": 3 * 8 * 8, "FIX": (2, 96)}},
    ),
    # a copy a row
    (
        "grouped_matmul(%x, %q, %c, none, %i) {transpose_weight = true}",
        ROWS,
        {"grouped_matmul": {"MTE2": (3 + 2, 96 + 512), "M Mmad": 2, "mnk": 3 * 8 * 8, "FIX": (2, 96)}},
    ),
    # an expert's bias, its rows in one copy, each row added to
    (
        "grouped_matmul(%x, %q, %c, %b) {transpose_weight = true}",
        ROWS,
        {"grouped_bias": {"MTE2": (4, 64 + 96), "V Add": 3, "MTE3": (2, 96)}},
    ),
    # the labels and a number for each; rows, what was picked and whether it counts
    (
        "cross_entropy(%x, %i) {ignore = none}",
        "f32[T]",
        {
            "pick_labels": {"MTE2": (1 + 3, 12 + 12), "S GetValue": 3, "V WholeReduceSum": 1, "MTE3": (2, 24)},
            "cross_entropy": {"MTE2": (3, 96 + 12 + 12), "V Exp": 1, "V Ln": 1, "MTE3": (1, 12)},
        },
    ),
    # 8 by 8 over a long K in 2 parts, one a core
    (
        "matmul(%k, %k) {transpose_a = false, transpose_b = true, to = none}",
        "f32[8, 8]",
        {
            "matmul": {"mnk": 64 * DEEP, "FIX": (2, 2 * 256)},
            "sum_of_parts": {"MTE2": (2, 2 * 256), "V Add": 2, "MTE3": (1, 256)},
        },
    ),
    (f"swiglu_grad(%x, %h) {GATED}", ROWS, {"swiglu_grad": {"MTE2": (2, 96 + 48), "MTE3": (1, 96)}}),
    # all 24 are kept: one block is counted, its start and the whole number stored, its numbers, an index a dimension
    (
        "nonzero(%x) {count = N}",
        "i64[2, N]",
        {
            "nonzero_counts": {"MTE2": (1, 96), "V ReduceSum": 1, "MTE3": (1, 4)},
            "nonzero_starts": {"MTE2": (1, 4), "MTE3": (2, 4 + 8)},
            "nonzero_places": {"MTE2": (1, 96), "S GetValue": 2, "V GatherMask": 1, "MTE3": (1, 96)},
            "nonzero_index": {"MTE2": (2, 2 * 96), "MTE3": (2, 2 * 192)},
        },
    ),
    # turned, 8 rows of 3 added one by one, turned back
    (
        "cumsum(%x) {axis = 1, exclusive = false, reverse = false}",
        ROWS,
        {
            "turn": {"MTE2": (2, 2 * 96), "MTE3": (2, 2 * 96)},
            "cumsum": {"MTE2": (8, 96), "V Add": 8, "MTE3": (8, 96)},
        },
    ),
    # all rows are copied, then 3 are put over them
    (
        'scatter_nd(%x, %t, %g) {reduction = "none"}',
        ROWS,
        {"scatter_nd_none": {"MTE2": (1 + 1 + 3, 96 + 12 + 96), "S GetValue": 3, "MTE3": (1 + 3, 96 + 96)}},
    ),
    # what is there comes in too
    (
        'scatter_nd(%x, %t, %g) {reduction = "add"}',
        ROWS,
        {"scatter_nd_add": {"MTE2": (1 + 1 + 6, 96 + 12 + 192), "V Add": 3, "MTE3": (1 + 3, 96 + 96)}},
    ),
    (
        "reduce_max(%y) {axes = [1, 2], keepdims = false}",
        "f32[T]",
        {"row_max": {"MTE2": (1, 192), "V WholeReduceMax": 1, "MTE3": (1, 12)}},
    ),
    # row by row: 8 lanes times ones, then one by one
    (
        "reduce_prod(%x) {axes = [1], keepdims = false}",
        "f32[T]",
        {"fold_prod": {"MTE2": (3, 96), "V Mul": 3, "S GetValue": 24, "S SetValue": 3, "MTE3": (1, 12)}},
    ),
    (
        "reduce_mean(%y) {axes = [0], keepdims = false}",
        "f32[2, 8]",
        {
            "sums": {"MTE2": (1, 192), "V Add": 3, "MTE3": (1, 64)},
            "means": {"MTE2": (1, 64), "V Div": 1, "MTE3": (1, 64)},
        },
    ),
    # turned; 3 places are numbered; 8 rows of 3 in four tiles, and a place of 8 bytes for each
    (
        "argmax(%x) {axis = 0, keepdims = false, last = false}",
        "i64[8]",
        {
            "turn": {"MTE2": (1, 96), "MTE3": (1, 96)},
            "places": {"MTE3": (1, 12)},
            "argmax": {"MTE2": (4 + 1, 96 + 12), "MTE3": (4, 64)},
        },
    ),
    # by the low half, fetched in that order, by the high half; the same for the order itself; 2 of a row fetched
    (
        "topk(%n) {k = 2, axis = 1, largest = true, sorted = true}",
        "i64[T, 2], i64[T, 2]",
        {"fetch_elements": {"MTE2": (2 * (3 + 24) + 3 + 6, 2 * (96 + 192) + 24 + 48), "MTE3": (9, 2 * 192 + 48)}},
    ),
    # 8 planes of 6 come in; 4 of kept ones and 6 bytes of places go out
    (
        "sparse24(%z)",
        "f32[T, 8], u8[T, 2]",
        {"sparse24": {"MTE2": (8, 192), "MTE3": (4 + 1, 96 + 6)}},
    ),
    ("dense24(%x, %u)", "f32[T, 16]", {"dense24": {"MTE2": (4 + 1, 96 + 6), "MTE3": (8, 192)}}),
    # two sequences, of 1 and 2 positions: two ends of each are read, two numbers a position stored
    (
        f"attention(%d, %d, %d, none, none, none, none, %s) {ATTENTION}",
        WIDE,
        {"attention_packed": {"S GetValue": 4, "MTE3": (4, 2 * 12)}},
    ),
    # rows of y and dy; per head the sink, the softmax's numbers and those sums; a part of each head
    (
        f"attention_grad(%d, %d, %d, %d, %m, %m, %d, none, %e, %r, %o) {ATTENTION}",
        f"{WIDE}, {WIDE}, {WIDE}, f32[2], {ROPE}, f32[1, 1, T, 8]",
        {
            "attention_delta": {"MTE2": (2, 2 * 384), "MTE3": (1, 24)},
            "attention_dsinks": {"MTE2": (2 * 4, 2 * (4 + 36)), "V Exp": 2, "MTE3": (2, 8)},
            "attention_heads": {"MTE2": (2, 192), "V Add": 2, "MTE3": (1, 96)},
        },
    ),
    # scores and the probabilities' gradient of each head, 3 by 3 over 16; a row at a time goes out
    (
        f"attention_mask_grad(%d, %d, %d, %d, %m, %m, %d, %a) {ATTENTION}",
        "f32[1, 2, T, T]",
        {"attention_dmask": {"mnk": 2 * 2 * 9 * 16, "MTE3 bytes": 2 * 36}},
    ),
]
GIVEN = (
    f"%x: {ROWS}, %g: {ROWS}, %h: f32[T, 4], %q: f32[2, 8, 8], %c: i32[2], %i: i32[T], %t: i32[T, 1], %b: f32[2, 8], "
    f"%k: f32[8, {DEEP}], %y: f32[T, 2, 8], %n: i64[T, 8], %z: f32[T, 16], %u: u8[T, 2], %d: {WIDE}, %m: {SUM}, "
    f"%s: i32[3], %e: f32[2], %r: {ROPE}, %o: f32[1, 1, T, 8], %a: f32[1, 2, T, T]"
)
SIZES = {"T": 3, "N": 24}
LINE = 4
"""Of the first call in the text."""


def text() -> str:
    made, body = [], []
    for i, (call, kinds, _) in enumerate(CASES):
        types = [f"{t}]" for t in kinds.rstrip("]").split("], ")]
        names = [f"y{i}_{j}" for j in range(len(types))]
        body.append(f"  {', '.join(f'%{n}' for n in names)} = {call} : {kinds}\n")
        made += list(zip(names, types, strict=True))
    outs, returned = ", ".join(f"{n}: {kind}" for n, kind in made), ", ".join(f"%{n}" for n, _ in made)
    symbols = "symbol T in [0, 5000]\nsymbol N in [0, 5000]\n"
    return f"{symbols}func main({GIVEN}) -> ({outs}) {{\n{''.join(body)}  return {returned}\n}}\n"


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {v.name: v.type for v in parse_module(text()).main.inputs}
    given: dict[str, np.ndarray] = {}
    for name, kind in shapes.items():
        dims = [SIZES.get(str(d), d) for d in kind.dims]
        given[str(name)] = (1 + rng.random([int(str(d)) for d in dims])).astype(np.float32)
    whole = {"c": [2, 1], "i": [2, 0, 2], "t": [[2], [0], [2]], "s": [0, 1, 3]}
    given |= {n: np.array(a, np.int32) for n, a in whole.items()}
    given["n"] = rng.integers(-(2**40), 2**40, (3, 8))
    return given | {"u": np.full((3, 2), 0x44, np.uint8)}


def other() -> ModuleType:
    """The module of the other hand counts."""
    path = Path(__file__).with_name("test_family_counts.py")
    spec = importlib.util.spec_from_file_location("family_counts", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_writer_of_kernels_is_counted_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_is(kernel: Kernel) -> Kernel:
        return kernel

    monkeypatch.setattr(builder, "synchronise", as_it_is)  # who wrote a kernel does not depend on its flags
    kernel_writers.note()
    programs = [lowered(t, FULL, cores=1) for t in (text(), other().text())]
    have = {kernel_writers.writer_of(k) for p in programs for k in p.kernels}
    assert kernel_writers.writers() - have == set()


@pytest.mark.slow
def test_four_counts_agree(tmp_path: Path) -> None:
    layer, given = Layer(text(), tmp_path / "plain", cores=1), arrays()
    layer.program = bared(layer.program)
    layer.project = built(layer.program, tmp_path / "bared")
    got, ran = run_counted(layer.project, given, SIZES, tmp_path, MOEC_CPU_STRICT="1")
    differ = disagreements(layer.program, SIZES, ran, integers(layer.program, given, got))
    assert differ == []
    launches = list(zip(layer.program.launches(), ran, strict=True))
    for line, (call, _, kernels) in enumerate(CASES, LINE):
        op = call.split("(")[0]
        mine = [(k.kernel, r) for k, r in launches if k.nodes[0].startswith(f"{op} (<text>:{line} ")]
        for kernel, hand in kernels.items():
            rows: Counter[str] = Counter()
            for name, launched in mine:
                for i in launched["instructions"] if name.startswith(kernel) else ():
                    rows[f"{i['pipe']} {i['op']}"] += i["count"]
                    rows[i["pipe"]] += i["count"] if i["bytes"] else 0
                    rows[f"{i['pipe']} bytes"] += i["bytes"]
                    rows["mnk"] += i["mnk"]
            have = {k: (rows[k], rows[f"{k} bytes"]) if isinstance(n, tuple) else rows[k] for k, n in hand.items()}
            assert have == hand, f"{op}: {kernel}"
