"""What the operator model answers through the target: ops without a kernel, gradient ops, collectives, host calls."""

from __future__ import annotations

from typing import Any

import pytest

from moec.diagnostics import Refusal
from moec.ir.group import Group
from moec.ir.types import BF16, F32, I32, TensorType
from moec.target import KernelTime
from moec.targets.ascend import load_target
from moec.targets.ascend.machine import load
from moec.targets.ascend.model.result import MODEL_VERSION

B1 = load_target("ascend910b1")
ATTENTION: dict[str, Any] = {
    "scale": 1.0, "causal": True, "offset": 0, "window": None, "softcap": None, "empty_rows": "zero"
}  # fmt: skip

SWIGLU: dict[str, Any] = {"activation": "silu", "glu": "chunked", "alpha": 1.0, "limit": None, "up_offset": 0.0}


def bf16(*shape: int) -> TensorType:
    return TensorType(BF16, shape)


def attention(queries: int, causal: bool = True, grad: bool = False) -> KernelTime:
    q, v = bf16(1, 24, queries, 128), bf16(1, 24, queries, 128)
    operands = [q, q, v]
    if grad:
        operands += [v, *[TensorType(F32, (1, 24, queries))] * 2, v]
    return B1.estimate("attention_grad" if grad else "attention", operands, ATTENTION | {"causal": causal}, {})


def test_attention_is_answered_by_its_kernel() -> None:
    time = attention(4096)
    assert time.model == MODEL_VERSION
    assert time.core == "mix"
    assert time.us > time.floor_us > 0
    assert 0.9 < attention(4096, causal=False).flops / (4 * 24 * 4096 * 4096 * 128) < 1.1


def test_causal_attention_does_about_half() -> None:
    assert 0.5 < attention(4096).us / attention(4096, causal=False).us < 0.6


def test_a_gradient_of_attention_takes_two_to_four_times_the_forward() -> None:
    assert 2.0 < attention(4096, grad=True).us / attention(4096).us < 4.0


@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("swiglu_grad", [bf16(4096, 2048), bf16(4096, 1024)], SWIGLU),
        ("grouped_matmul_dw", [bf16(8192, 1024), bf16(8192, 2048), TensorType(I32, (16,))], {"to": None}),
        ("topk", [TensorType(F32, (4096, 256))], {"k": 8, "axis": 1, "largest": True, "sorted": True}),
        ("an_op_of_tomorrow", [bf16(4096, 4096), bf16(4096)], {}),
    ],
)  # fmt: skip
def test_other_ops_have_a_time(op: str, operands: list[TensorType | None], attrs: dict[str, Any]) -> None:
    time = B1.estimate(op, operands, attrs, {})
    assert time.us >= time.floor_us > 0
    assert time.bound


def test_a_collective_takes_its_exchange() -> None:
    attrs = {"group": Group("ep", 8, 1), "reduction": "sum"}
    time = B1.estimate("all_reduce", [bf16(1 << 20)], attrs, {})
    assert time.us == B1.collective("all_reduce", 2 << 20, 8, ranks_per_node=8)
    assert time.core == "comm"
    assert 0 < time.floor_us <= time.low_us < time.us < time.high_us
    assert time.floor_us == pytest.approx(2 * (2 << 20) * 7 / 8 / 196e9 * 1e6 + 1.0)


def test_a_read_by_the_host_takes_what_the_call_takes() -> None:
    time = B1.estimate("to_host", [bf16(8)], {}, {})
    assert (time.us, time.core) == (B1.host("read"), "host")
    assert time.low_us < time.us < time.high_us


def test_control_flow_is_refused() -> None:
    with pytest.raises(Refusal, match="stands for other ops"):
        B1.estimate("call", [bf16(4)], {"fn": "f"}, {})


def test_unknown_calls_are_refused_with_what_there_is() -> None:
    with pytest.raises(Refusal, match="did you mean 'launch'"):
        B1.host("lunch")
    with pytest.raises(Refusal, match="did you mean 'all_reduce'"):
        B1.collective("allreduce", 8, 8, ranks_per_node=8)
    with pytest.raises(Refusal, match="9 ranks in a node"):
        B1.collective("all_reduce", 8, 9, ranks_per_node=9)


def test_every_chip_answers() -> None:
    assert load_target("ascend910b4").estimate("nothing_known", [bf16(1 << 28)], {}, {}).us > (
        B1.estimate("nothing_known", [bf16(1 << 28)], {}, {}).us
    )
    assert load("ascend910b1").cores("aic") == 24


@pytest.mark.parametrize(("op", "operands"), [("add", [bf16(4096, 4096)] * 2), ("sort_of_tomorrow", [bf16(4096)])])
def test_every_time_has_a_band(op: str, operands: list[TensorType | None]) -> None:
    time = B1.estimate(op, operands, {}, {})
    assert 0 < time.low_us < time.us < time.high_us
    assert time.low_us >= min(time.us, time.floor_us)
    assert time.confidence in ("high", "medium", "low")
