"""Attention over packed sequences on the CPU model against fp64, forward and backward, in several orders of cores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ascend_run import built, issued
from attention_layers import (
    SEQUENCES,
    STATS,
    Errors,
    Net,
    arrays_of,
    forward,
    gradient,
    mask_gradient,
    program,
    run_alike,
    with_gradient,
)

from moec.codegen.hazards import check
from moec.codegen.kernel_ir import Witness
from moec.codegen.limits import check_limits
from moec.codegen.races import check_races

NETS = {
    "causal": Net("bf16", 2, 1, 40, 24, causal=True, packed=True, stats=True),
    "both": Net("f32", 2, 2, 24, 16, mask=("f32", "S, S"), rope=(8, 1), packed=True),
}
SWEPT = {
    "window": Net("f16", 2, 2, 64, 64, True, 33, 8.0, sinks="f32", packed=True, stats=True),
    "wide": Net("bf16", 2, 1, 256, 256, packed=True),
}
SIZES = ((1, 1), (1, 7), (2, 127), (1, 200), (2, 0))


def compare(nets: dict[str, Net], folder: Path, kind: str) -> None:
    project = built(program(nets, kind != "forward", by_mask=kind == "mask"), folder)
    errors = Errors()
    for batch, positions in SIZES:
        arrays, inputs = {}, {}
        for name, net in nets.items():
            rng = np.random.default_rng(positions)
            a = arrays_of(net, batch, positions, positions, rng)
            inputs[name] = a if kind == "forward" else with_gradient(net, a, rng)
            arrays |= {f"{name}_{operand}": value for operand, value in inputs[name].items()}
        got = run_alike(project, arrays, {"B": batch, "S": positions, "T": positions, "C": SEQUENCES + 1})
        for name, net in nets.items():
            for wanted, plain, result, dtype in results(net, inputs[name], kind):
                errors.add(f"{name} {result}", got[f"{name}_{result}"], wanted, plain, dtype)
    errors.check()


def results(net: Net, a: dict[str, np.ndarray], kind: str) -> list[tuple[np.ndarray, np.ndarray, str, str]]:
    if kind == "mask":
        assert net.mask is not None
        return [(mask_gradient(net, a), mask_gradient(net, a, np.float32), "dmask", net.mask[0])]
    reference = forward if kind == "forward" else gradient
    wanted, plain = reference(net, a), reference(net, a, np.float32)
    names = ("y", *STATS) if net.stats else ("y",)
    kept = {n: v for n, v in wanted.items() if kind != "forward" or n in names}
    f32 = {*STATS, "dsinks"}
    return [(v, plain[n], n, "f32" if n in f32 else net.dtype) for n, v in kept.items()]


@pytest.mark.slow
def test_forward(tmp_path: Path) -> None:
    compare(NETS, tmp_path, "forward")


@pytest.mark.slow
def test_gradient(tmp_path: Path) -> None:
    compare({"causal": NETS["causal"]}, tmp_path, "backward")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_every_kind(kind: str, tmp_path: Path) -> None:
    compare(SWEPT if kind == "forward" else SWEPT | {"both": NETS["both"]}, tmp_path, kind)


@pytest.mark.slow
def test_gradient_by_a_mask(tmp_path: Path) -> None:
    compare({"both": NETS["both"]}, tmp_path, "mask")


def test_static_checks() -> None:
    kernels = program(NETS, False).kernels
    assert len(kernels) == 3
    for kernel in kernels:
        assert check(kernel) == [] and check_races(kernel) == [] and check_limits(kernel) == []


@pytest.mark.parametrize("grad", [False, True])
def test_tiles_of_other_sequences_are_not_visited(grad: bool) -> None:
    """Sequences of 64, 128 and 64 positions in tiles of 32 by 64: 2 x 1 + 4 x 2 + 2 x 1 pairs of 8 x 4."""
    net = Net("bf16", 1, 1, 64, 64, packed=True)
    first, after = [0] * 64 + [64] * 128 + [192] * 64, [192] * 64 + [64] * 128 + [0] * 64
    for kernel in (k for k in program({"x": net}, grad).kernels if k.core == "mix"):
        args = tuple((p.name, {"B": 1, "S": 256, "offset": 0}[p.name]) for p in kernel.args)
        visited = []
        for data in ((("seqFirst", tuple(first)), ("seqAfter", tuple(after))), ()):
            found = issued(kernel, Witness(args, 2, data))
            visited.append(found["M", "Mmad"][0])
        assert visited[0] * 32 == visited[1] * 12, kernel.name
