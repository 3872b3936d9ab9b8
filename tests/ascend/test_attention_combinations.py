"""Attention in drawn combinations of what it may have at once: variable length, sinks, window, soft cap, masks of both
kinds and every broadcast, grouped heads, rotary parts beside the others; forward and backward against fp64.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ascend_run import built
from attention_layers import (
    SEQUENCES,
    STATS,
    Errors,
    Net,
    arrays_of,
    forward,
    gradient,
    program,
    run_alike,
    with_gradient,
)

from moec.codegen.limits import check_limits

DRAWN = 24
TOGETHER = 4
"""Combinations that one program holds."""
SIZES = ((1, 1, 1), (2, 33, 70), (1, 126, 127), (1, 70, 200), (1, 9, 5), (1, 0, 3))


def drawn(seed: int) -> Net:
    """The combination of that number; each property is drawn by itself."""
    rng = np.random.default_rng(seed)

    def one_of(*choices: object) -> object:
        return choices[int(rng.integers(len(choices)))]

    dtype, packed = str(one_of("f32", "f16", "bf16")), bool(rng.random() < 0.3)
    heads, kv = one_of((2, 1), (2, 2), (4, 2), (3, 3), (3, 1))  # type: ignore[misc]
    width, values = one_of((64, 64), (80, 80), (40, 24), (128, 64), (33, 20), (16, 128))  # type: ignore[misc]
    columns = int(one_of(0, 0, 8, 64))  # type: ignore[call-overload]
    keys = "S" if packed else "T"
    masks = ["S, T", "B, 1, S, T", "B, 1, 1, T", f"{heads}, S, T", f"B, {heads}, S, 1", "T", "1, 1, S, T"]
    mask = None
    if rng.random() < 0.6:
        mask = (
            str(one_of("bool", "f32", dtype)),
            str(one_of(*masks)).replace("T", keys).replace("B", "1" if packed else "B"),
        )
    return Net(
        dtype, heads, kv, width, values,
        causal=bool(rng.random() < 0.5),
        window=one_of(None, None, 1, 33, 100),  # type: ignore[arg-type]
        softcap=one_of(None, None, 5.0),  # type: ignore[arg-type]
        mask=mask,
        sinks=str(one_of("", "", "f32", dtype)),
        rope=(columns, int(one_of(1, kv))) if columns else None,  # type: ignore[call-overload]
        empty=str(one_of("zero", "nan")),
        stats=bool(rng.random() < 0.3),
        packed=packed,
    )  # fmt: skip


def _groups(packed: bool, grad: bool) -> list[dict[str, Net]]:
    """All combinations, in programs of their own for packed ones, whose sizes are other ones."""
    nets = {f"n{i}": drawn(i) for i in range(DRAWN)}
    kept = [(n, net) for n, net in nets.items() if net.packed == packed and not (grad and net.empty == "nan")]
    return [dict(kept[i : i + TOGETHER]) for i in range(0, len(kept), TOGETHER)]


def compare(nets: dict[str, Net], grad: bool, folder: Path) -> None:
    project = built(program(nets, grad), folder)
    packed = next(iter(nets.values())).packed
    errors = Errors()
    for batch, queries, keys in SIZES:
        keys = queries if packed else keys
        arrays, inputs = {}, {}
        for i, (name, net) in enumerate(nets.items()):
            rng = np.random.default_rng((i, queries))
            a = arrays_of(net, batch, queries, keys, rng)
            inputs[name] = with_gradient(net, a, rng) if grad else a
            arrays |= {f"{name}_{operand}": value for operand, value in inputs[name].items()}
        got = run_alike(project, arrays, {"B": batch, "S": queries, "T": keys, "C": SEQUENCES + 1})
        for name, net in nets.items():
            a = inputs[name]
            if grad:
                plain = gradient(net, a, np.float32)
                for result, value in gradient(net, a).items():
                    dtype = net.sinks if result == "dsinks" else net.dtype
                    errors.add(f"{name} {result}", got[f"{name}_{result}"], value, plain[result], dtype)
                continue
            want, plain = forward(net, a), forward(net, a, np.float32)
            errors.add(f"{name} y", got[f"{name}_y"], want["y"], plain["y"], net.dtype)
            for stat in STATS if net.stats else ():
                errors.add(f"{name} {stat}", got[f"{name}_{stat}"], want[stat], plain[stat], "f32")
    errors.check()


@pytest.mark.parametrize("seed", [1, 8, 14])
def test_any_combination_lowers(seed: int) -> None:
    """Forward and backward, within what the instructions may be given."""
    for grad in (False, True):
        for kernel in program({"n": drawn(seed)}, grad).kernels:
            assert check_limits(kernel) == []


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_every_combination_agrees(grad: bool, packed: bool, tmp_path: Path) -> None:
    for i, nets in enumerate(_groups(packed, grad)):
        compare(nets, grad, tmp_path / str(i))
