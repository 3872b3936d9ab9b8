"""``moec opt``, ``check``, ``estimate`` and the lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import ROOT, moec, refused

from moec.ir.text import parse_module

TINY = ROOT / "examples" / "tiny_moe.moe"


def test_opt_prints_ir_that_reads_back_and_goes_on(tmp_path: Path) -> None:
    first = moec("opt", TINY)
    assert first.returncode == 0 and [n.op for n in parse_module(first.stdout).nodes()].count("moe") == 1
    (tmp_path / "a.mir").write_text(first.stdout)
    second = moec("opt", tmp_path / "a.mir", "--passes", "expand-moe,dce", "--origins")
    ops = [n.op for n in parse_module(second.stdout).nodes()]
    assert "gating" in ops and "moe" not in ops and "# " in second.stdout


def test_check_says_what_a_layer_is() -> None:
    done = moec("check", TINY)
    assert done.returncode == 0
    assert "x: f32[T, 64]" in done.stdout and "T in [1, 64]" in done.stdout


@pytest.mark.parametrize(
    ("command", "key", "name"), [("passes", "pass", "cse"), ("ops", "op", "moe"), ("targets", "target", "ascend910b1")]
)
def test_lists_as_tables_and_json(command: str, key: str, name: str) -> None:
    rows = json.loads(moec(command, "--json").stdout)
    assert name in [r[key] for r in rows]
    table = moec(command).stdout
    assert all(r[key] in table for r in rows)


def test_an_estimate_is_json_with_cycles_and_microseconds() -> None:
    done = moec("estimate", "matmul", "--shape", "256x512,512x128", "--dtype", "bf16", "--target", "ascend910b3")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["cycles"] > 0 and answer["us"] >= answer["floor_us"] and answer["target"] == "ascend910b3"
    assert answer["flops"] == 2 * 256 * 512 * 128
    twice = moec(
        "estimate",
        "matmul",
        "--shape",
        "[256, 512]",
        "--shape",
        "512,128",
        "--dtype",
        "bf16",
        "--target",
        "ascend910b3",
    )
    assert twice.stdout == done.stdout


ROUTING = [
    *("top_k=2", "score=softmax", "score_order=before_topk", "groups=1", "group_top_k=1", "group_score=none"),
    *("group_mask=none", "renormalize=true", "renormalize_eps=0", "scale=1", "score_dtype=f32", "weights_dtype=f32"),
]


@pytest.mark.parametrize(
    ("op", "shapes", "dtypes", "attributes"),
    [
        ("gating", "40x8", "f32", ROUTING),
        ("swiglu", "40x48", "bf16", ["activation=silu", "glu=chunked", "alpha=1", "limit=none", "up_offset=0"]),
        ("cast", "40x48", "bf16", ["to=f32"]),
        ("reduce_sum", "40x48", "f32", ["axes=1", "keepdims=true"]),
        ("reduce_sum", "40x48", "f32", ["axes=[1]", "keepdims=true"]),
        ("permute", "40x16,40x2,8", "bf16,i32,i32", []),
    ],
)
def test_attributes_are_written_as_a_shell_has_them(op: str, shapes: str, dtypes: str, attributes: list[str]) -> None:
    """A float may be a whole number, a dtype a bare name, a list needs no brackets."""
    given = [word for a in attributes for word in ("--attr", a)]
    done = moec("estimate", op, "--shape", shapes, "--dtype", dtypes, *given)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cycles"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("matmull", "--shape", "4x4,4x4"), 1, "did you mean 'matmul'?"),
        (("matmul", "--shape", "4x4,5x4"), 1, "matmul"),
        (("matmul", "--shape", "4x4"), 1, "missing"),
        (("matmul", "--shape", "4xfour,4x4"), 2, "4xfour"),
        (("matmul", "--shape", "4x4,4x4", "--dtype", "f33"), 1, "did you mean 'f32'?"),
        (("matmul", "--shape", "4x4,4x4", "--dtype", "f32,f32,f32"), 2, "3 dtypes for 2 shapes"),
        (("matmul", "--shape", "4x4,4x4", "--attr", "transpose_c=true"), 1, "did you mean 'transpose_"),
        (("softmax", "--shape", "4x4"), 1, "'axis' is missing"),
        (("nonzero", "--shape", "4x4", "--attr", "count=n", "--dtype", "f32"), 1, "no size for 'n'"),
        (("matmul", "--shape", "4x4,4x4", "--target", "gpu"), 1, "ascend910b1"),
        (("add", "--shape", "99999999999x99999999,1"), 1, "bytes, Ascend910B1"),
        (("softmax", "--shape", "4x4", "--attr", "axis=1,0"), 2, "',0' after its value"),
        (("cast", "--shape", "4x4", "--attr", "to=f33"), 1, "did you mean 'f32'?"),
    ],
)
def test_estimates_that_cannot_be_made(arguments: tuple[str, ...], code: int, text: str) -> None:
    refused(moec("estimate", *arguments), code, text)
