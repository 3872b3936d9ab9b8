"""Layers of groups of ranks on the CPU model, every rank's outputs and gradients against the rank evaluator's; and a
program in which one rank comes to two collectives in the other order.
"""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from command import moec
from roundings import Judged, judged_ranks

from moec import driver
from moec.codegen.capacities import Capacities
from moec.codegen.lower import lower_module
from moec.codegen.streams import unordered
from moec.diagnostics import CheckFailed, NoKernel, Refusal
from moec.eval import run
from moec.execute import Project
from moec.frontend.dsl import parse_moe
from moec.ir.group import Group
from moec.ir.symbol import sym
from moec.ir.types import F32, TensorType
from moec.passes.base import default_passes, parse_passes, train_passes
from moec.targets.ascend.target import load_target

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LAYER = (EXAMPLES / "tp2_ep4_layer.moe").read_text()
DISPATCHER = (EXAMPLES / "megatron_dispatcher.moe").read_text()
EXCHANGES = {
    "async": "sync-removal",
    "all-gather": "sync-removal{counts=all-gather}",
    "capacity": "sync-removal{counts=capacity,capacity_factor=4.0}",
    "reads": "sync-removal{counts=keep}",
}

BF16 = ml_dtypes.bfloat16
Arrays = dict[str, np.ndarray]


def compiled(text: str, folder: Path, exchange: str = "async", train: bool = False) -> driver.Compiled:
    passes = train_passes("") if train else default_passes()
    chosen = [parse_passes(EXCHANGES[exchange])[0] if p.name == "sync-removal" else p for p in passes]
    made = driver.compile(parse_moe(text), folder, passes=chosen, train="" if train else None)
    assert made.schedule is not None, made.summary["not_lowered"]
    return made


def layer_arrays(
    tokens: list[int], only: int | None = None, joint: bool = False, tp: int = 2, heads: int = 4
) -> Arrays:
    """Inputs of the 8 ranks, ``tokens`` for each ``tp`` tensor-parallel ones, and whole weights; with ``only`` every
    token chooses experts ``2 * only`` and the one behind it.
    """
    rng = np.random.default_rng(len(tokens))

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 4).astype(np.float32)

    arrays = {
        "input_norm": 1 + normal(32),
        "norm": 1 + normal(32),
        "router": 4 * normal(8, 32),
        **{name: normal(16 * heads, 32) for name in ("q_proj", "k_proj", "v_proj")},
        "o_proj": normal(32, 16 * heads),
        **{name: normal(8, 32, 32) for name in ("gate", "up", "down")},
    }
    if only is not None:  # the normalised stream has a constant first column, which decides
        arrays["router"][:, 0] = np.where(np.arange(8) // 2 == only, 4, -4)
    for rank in range(8):
        x = 4 * normal(tokens[rank // tp], 32)
        if only is not None:
            x[:, 0] = 10
        arrays[f"rank{rank}.x"] = x
        if joint:
            arrays[f"rank{rank}.d_y"] = 4 * normal(tokens[rank // tp], 32)
    return arrays


def agrees(made: driver.Compiled, folder: Path, arrays: Arrays, atol: float = 1e-5, **environment: str) -> Arrays:
    """Every output of every rank is the evaluator's; those of the evaluator. One that is further off than ``atol`` of
    its size, as gradients are in which terms cancel, is judged against fp64: see ``roundings``.
    """
    want = run(made.module, arrays, arrays)
    got = Project(folder).run(arrays, {"MOEC_CPU_STRICT": "1"} | environment)
    assert list(got) == list(want)
    scales = {name: max(1.0, float(np.abs(array).max(initial=0))) for name, array in want.items()}
    off = {n: np.abs(got[n].astype(np.float64) - a.astype(np.float64)) for n, a in want.items()}
    far = [n for n, error in off.items() if not (error <= atol * scales[n]).all()]
    judged = judged_ranks(made.module, arrays) if far and atol else Judged(want, dict.fromkeys(want, 0.0))
    for name in far:
        exact, allowed = judged.exact[name], judged.allowed[name]
        np.testing.assert_allclose(got[name].astype(np.float64), exact, rtol=0, atol=allowed, err_msg=name)
    return want


def test_a_layer_over_eight_ranks(tmp_path: Path) -> None:
    """With different numbers of tokens, and with experts that get nothing, on all ranks but one."""
    made = compiled(LAYER, tmp_path / "out")
    assert unordered(made.program.steps, made.program.accesses) == []
    agrees(made, tmp_path / "out", layer_arrays([5, 5, 5, 5]))
    agrees(made, tmp_path / "out", layer_arrays([1, 7, 2, 3]), MOEC_POISON="1")  # temporaries in one block
    one = layer_arrays([2, 1, 3, 1], only=2)
    before = run(parse_moe(LAYER), one, one)
    after = agrees(made, tmp_path / "out", one)
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, atol=1e-4, err_msg=name)
    host = (tmp_path / "out/ascendc/host/main.cpp").read_text()
    for call in ("HcclAllGather(", "HcclReduceScatter(", "HcclAlltoAllV(", "aclrtStreamWaitEvent(stream_comm, "):
        assert call in host


TWO = """
dim T in [0, 64]
group tp = 2
input x: f32[T, 8]
output a = all_reduce(x, group = tp, reduction = "sum"), b = all_gather(x, group = tp, axis = 0)
"""


@pytest.mark.parametrize("swapped", [False, True])
def test_a_rank_that_swaps_two_collectives_is_reported(swapped: bool, tmp_path: Path) -> None:
    made = compiled(TWO, tmp_path / "out")
    arrays = {f"rank{r}.x": np.full((r, 8), r + 1, np.float32) for r in range(2)}
    same = {f"rank{r}.x": np.full((3, 8), r + 1, np.float32) for r in range(2)}
    project = tmp_path / "out" / "ascendc"
    if not swapped:
        agrees(made, tmp_path / "out", same, 0)
        with pytest.raises(CheckFailed, match=r"deadlock: .*; rank 0 at the end; rank 1 in HcclAllReduce of 8 float32"):
            Project(project).run(arrays)
        return
    main = project / "host" / "main.cpp"
    text = main.read_text()
    first, second = re.finditer(r"ranks::Check\(Hccl\w+\(.*\);", text)
    turned = [f"if (ranks::Own() == 1) {{ {b[0]} }} else {{ {a[0]} }}" for a, b in ((first, second), (second, first))]
    main.write_text(
        text[: first.start()] + turned[0] + text[first.end() : second.start()] + turned[1] + text[second.end() :]
    )
    with pytest.raises(CheckFailed) as caught:
        Project(project).run(same)
    message = str(caught.value)
    line = text[: first.start()].count("\n") + 1
    assert "collectives over tp_0 do not match: rank 0 calls HcclAllReduce of 24 float32" in message
    assert re.search(rf"rank 1 calls HcclAllGather of 24 float32 at \S*main.cpp:{line}", message), message


def test_moec_run_compares_every_rank_with_numpy(tmp_path: Path) -> None:
    (tmp_path / "two.moe").write_text(TWO)
    arrays = {f"rank{r}.x": np.full((3, 8), r + 0.5, np.float32) for r in range(2)}
    np.savez(tmp_path / "x.npz", **arrays)
    out = str(tmp_path / "out")
    assert moec("compile", str(tmp_path / "two.moe"), "-o", out).returncode == 0
    done = moec("run", out, "--inputs", str(tmp_path / "x.npz"), "--check")
    assert done.returncode == 0, done.stderr
    for name in ("rank0.a", "rank0.b", "rank1.a", "rank1.b"):
        assert re.search(rf"{name}\W+0\.000e\+00", done.stdout), done.stdout
    main = tmp_path / "out" / "ascendc" / "host" / "main.cpp"
    main.write_text(main.read_text().replace("HCCL_REDUCE_SUM", "HCCL_REDUCE_MAX"))
    wrong = moec("run", out, "--inputs", str(tmp_path / "x.npz"), "--check")
    assert wrong.returncode == 3 and "output 'rank1.a' is off by 0.5" in wrong.stderr, wrong.stderr


AXES = """
dim T in [0, 64]
group g = 2
input x: f32[T, 4, 6], h: bf16[T, 4]
gathered = all_gather(x, group = g, axis = 1)
scattered = reduce_scatter(x, group = g, axis = 2, reduction = "max")
turned = all_to_all(x, group = g, split_axis = 1, concat_axis = 2)
output gathered, scattered, turned, s = all_reduce(h, group = g, reduction = "sum"), i = group_rank(group = g)
"""


@pytest.mark.slow
def test_parts_along_other_dimensions_and_half_floats(tmp_path: Path) -> None:
    made = compiled(AXES, tmp_path / "out")
    rng = np.random.default_rng(0)
    for rows in (3, 1):
        arrays = {f"rank{r}.x": rng.standard_normal((rows, 4, 6)).astype(np.float32) for r in range(2)}
        arrays |= {f"rank{r}.h": rng.standard_normal((rows, 4)).astype(BF16) for r in range(2)}
        agrees(made, tmp_path / "out", arrays, 0)


def test_what_hccl_does_not_take_is_refused_by_name() -> None:
    text = 'group g = 2\ninput x: u32[8]\noutput y = all_reduce(x, group = g, reduction = "sum")\n'
    made = driver.compile(parse_moe(text))
    assert made.schedule is None
    assert "HCCL has no all_reduce of u32" in made.summary["not_lowered"][0]
    open_size = text.replace("group g = 2", "group g in [1, 4] = 2").replace("u32", "f32")
    with pytest.raises(NoKernel, match=r"group g is @g\(g, 1\)"):
        lower_module(parse_moe(open_size), Capacities(), {})


DISPATCHED = [("async", False), ("all-gather", False), ("capacity", False), ("reads", False), ("async", True)]


def test_a_group_whose_size_is_a_symbol_is_refused_by_name() -> None:
    """By the time of one op too, which passes ask for before anything is lowered."""
    group = Group("ep", sym("P"), 1)
    attrs = {"group": group, "reduction": "sum"}
    with pytest.raises(Refusal, match=r"group ep is @ep\(P, 1\)\s+-> write its size as a number, or give P"):
        load_target("ascend910b1").estimate("all_reduce", [TensorType(F32, (4, 8))], attrs, {})


@pytest.mark.slow
@pytest.mark.parametrize(("exchange", "train"), [*DISPATCHED, ("all-gather", True), ("capacity", True)])
def test_dispatchers_of_every_kind(exchange: str, train: bool, tmp_path: Path) -> None:
    """With ranks that have no token and experts that nobody chose; blocks want as many tokens on every rank."""
    made = compiled(
        DISPATCHER.replace("dim T in [1, 8192] = 4096", "dim T in [0, 64] = 8"), tmp_path / "out", exchange, train
    )
    rng = np.random.default_rng(7)
    weights = {
        "router": rng.standard_normal((16, 64)).astype(np.float32),
        "gate_up": (rng.standard_normal((16, 64, 64)) / 8).astype(np.float32),
        "down": (rng.standard_normal((16, 64, 32)) / 6).astype(np.float32),
    }
    blocks = exchange in ("all-gather", "capacity")
    for tokens in ([6, 6, 6, 6], [1, 1, 1, 1]) if blocks else ([7, 1, 12, 3], [0, 9, 0, 2]):
        for only in (None, 1):
            arrays = {k: v.copy() for k, v in weights.items()}
            for rank, n in enumerate(tokens):
                arrays[f"rank{rank}.x"] = rng.standard_normal((n, 64)).astype(np.float32)
                arrays[f"rank{rank}.d_y"] = rng.standard_normal((n, 64)).astype(np.float32)
                if only is not None:
                    arrays[f"rank{rank}.x"] = np.abs(arrays[f"rank{rank}.x"])
            if only is not None:
                signs = np.where(np.arange(16) // 4 == only, 1, -1)
                arrays["router"] = np.abs(arrays["router"]) * signs[:, None].astype(np.float32)
            agrees(made, tmp_path / "out", arrays)


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["async", "all-gather", "capacity"])
def test_a_layer_over_eight_ranks_forward_and_backward(exchange: str, tmp_path: Path) -> None:
    made = compiled(LAYER, tmp_path / "out", exchange, train=True)
    assert not [w for w in made.summary["warnings"] if "the host reads" in w]
    assert bool(made.program.binds()) == (exchange == "async") == (not made.program.lengths)
    assert unordered(made.program.steps, made.program.accesses) == []
    for tokens, only in (([5, 5, 5, 5], None), ([1, 1, 1, 1], 2)):
        agrees(made, tmp_path / "out", layer_arrays(tokens, only, joint=True))
    agrees(made, tmp_path / "out", layer_arrays([5, 5, 5, 5], joint=True), MOEC_POISON="1")


def grouped(tp: int, ep: int, heads: int) -> str:
    """The layer with other groups and so many heads in all."""
    text = LAYER.replace("group tp = 2", f"group tp = {tp}").replace("group ep = 4", f"group ep = {ep}")
    return text.replace("N = 4 / tp", f"N = {heads} / tp")


@pytest.mark.slow
@pytest.mark.parametrize(("tp", "ep", "heads"), [(4, 2, 4), (1, 8, 3), (8, 1, 8)])
def test_groups_of_other_shapes_forward_and_backward(tp: int, ep: int, heads: int, tmp_path: Path) -> None:
    made = compiled(grouped(tp, ep, heads), tmp_path / "out", train=True)
    for tokens, only in ((5, None), (1, 2)):
        agrees(made, tmp_path / "out", layer_arrays([tokens] * ep, only, True, tp, heads))


@pytest.mark.parametrize(
    ("tp", "ep", "heads", "what"),
    [(2, 3, 4, "3 does not divide 8"), (3, 2, 3, "3 does not divide 32"), (8, 1, 4, "8 does not divide 4")],
)
def test_groups_that_do_not_divide_what_they_share_are_refused(tp: int, ep: int, heads: int, what: str) -> None:
    """Experts, the inner width of one, heads."""
    with pytest.raises(Refusal, match=what):
        parse_moe(grouped(tp, ep, heads))


@pytest.mark.slow
def test_every_wait_of_a_program_is_needed(tmp_path: Path) -> None:
    """Each is left out in turn: the CPU model refuses what streams then do unordered, or memory not written yet."""
    compiled(AXES, tmp_path / "out")
    rng = np.random.default_rng(0)
    arrays = {f"rank{r}.x": rng.standard_normal((3, 4, 6)).astype(np.float32) for r in range(2)}
    arrays |= {f"rank{r}.h": rng.standard_normal((3, 4)).astype(BF16) for r in range(2)}
    main = tmp_path / "out" / "ascendc" / "host" / "main.cpp"
    text = main.read_text()
    waits = list(re.finditer(r"    Check\(aclrtStreamWaitEvent\(.*\n", text))
    assert len(waits) >= 3
    for wait in waits:
        main.write_text(text[: wait.start()] + text[wait.end() :])
        with pytest.raises(CheckFailed, match=r"unordered|nothing has written|never written"):
            Project(tmp_path / "out").run(arrays)
