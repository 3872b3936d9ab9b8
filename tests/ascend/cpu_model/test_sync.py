"""Hazards, cross-core synchronisation, orders of the cores, masks of single sites, and instruction counts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cpu_model_harness import execute, line_of, refusal, run

RNG = np.random.default_rng(5)
TILES = RNG.standard_normal(256).astype(np.float32)
ORDERS = ["forward", "reverse", "random:1", "random:2"]


def masked(case: str, kind: str, marker: str, *data: np.ndarray) -> str:
    return refusal("sync", case, *data, env={"MOEC_CPU_MASK": f"{kind}@sync.cpp:{line_of('sync', marker)}"})


def test_unmasked_tiles_are_right() -> None:
    want = (TILES + np.float32(1)) * np.float32(2)
    assert np.array_equal(run("sync", "tiles", TILES), want)
    assert np.array_equal(run("sync", "tiles", TILES, env={"MOEC_CPU_STRICT": "1"}), want)


@pytest.mark.parametrize(
    ("kind", "marker", "pattern"),
    [
        ("set", "set free", "wait without set .*V_MTE2 id 0"),
        ("set", "set data", "wait without set .*MTE2_V id 0"),
        ("wait", "wait data", r"unsynchronised pipes .*Adds: reads .*DataCopy at .*MTE2_V"),
        (
            "wait",
            "wait free",
            r"unsynchronised pipes .*DataCopy: writes .*reading|unsynchronised pipes .*DataCopy: writes .*writing",
        ),
        ("wait", "wait out", r"unsynchronised pipes .*Muls: writes .*DataCopy at .* may still be reading.*MTE3_V"),
        ("wait", "wait result", r"unsynchronised pipes .*DataCopy: reads .*Muls at .*V_MTE3"),
        ("bound", "init", "outside the buffer"),
        ("bound", "view", "outside the buffer"),
        ("bound", "gm", r"out of range .*bounds to 1020 bytes"),
    ],
)
def test_every_site_of_the_tile_loop_is_needed(kind: str, marker: str, pattern: str) -> None:
    if (kind, marker) == ("bound", "init"):
        # the last 32 bytes of the memory are not used by this kernel: nothing may be refused
        env = {"MOEC_CPU_MASK": f"bound@sync.cpp:{line_of('sync', 'init')}"}
        assert execute("sync", "tiles", TILES.tobytes(), env).returncode == 0
        return
    assert re.search(pattern, masked("tiles", kind, marker, TILES))


def test_barrier_mask_shows_when_strict() -> None:
    env = {"MOEC_CPU_MASK": f"barrier@programs/sync.cpp:{line_of('sync', 'barrier')}"}
    assert execute("sync", "tiles", TILES.tobytes(), env).returncode == 0
    message = refusal("sync", "tiles", TILES, env={**env, "MOEC_CPU_STRICT": "1"})
    assert re.search(r"missing barrier .*Muls: reads .*Adds at .*PipeBarrier<PIPE_V>", message)


def test_a_flag_set_again_too_early_shows_when_strict() -> None:
    assert np.array_equal(run("sync", "one_event", TILES[:16]), TILES[:8] + TILES[8:16])
    message = refusal("sync", "one_event", TILES[:16], env={"MOEC_CPU_STRICT": "1"})
    places = f"sync.cpp:{line_of('sync', 'second set')} .*sync.cpp:{line_of('sync', 'first wait')}"
    assert re.search(f"flag may be set twice .*{places}, and would set a flag", message)


def test_pad_mask() -> None:
    assert re.search("never written", masked("padded", "pad", "pad", TILES[:8]))


def test_syncall_mask() -> None:
    message = masked("two_phases", "syncall", "syncall", TILES[:64])
    assert re.search(r"unsynchronised cores .*DataCopy", message)


def test_cross_core_waits_are_needed() -> None:
    data = mixed_inputs()
    for marker in ("take back", "result there"):
        assert re.search("unsynchronised cores", masked("mixed", "wait", marker, *data))


def test_mask_of_another_file_or_line_changes_nothing() -> None:
    line = line_of("sync", "wait data")
    for mask in (f"wait@other.cpp:{line}", f"wait@sync.cpp:{line + 100}", f"set@sync.cpp:{line}", "nonsense"):
        assert execute("sync", "tiles", TILES.tobytes(), {"MOEC_CPU_MASK": mask}).returncode == 0


@pytest.mark.parametrize("order", ORDERS)
def test_two_phases(order: str) -> None:
    x = TILES[:64] * np.float32(2)
    got = run("sync", "two_phases", TILES[:64], env={"MOEC_CPU_ORDER": order})
    assert np.array_equal(got[:64], x)
    both = x[:32] + x[32:]
    assert np.array_equal(got[64:], np.concatenate([both, both]))


def mixed_inputs() -> tuple[np.ndarray, ...]:
    a = RNG.integers(-8, 9, (2, 16, 16)).astype(np.float16)
    return a, np.eye(16, dtype=np.float16)


@pytest.mark.parametrize("order", ORDERS)
def test_mixed_kernel(order: str) -> None:
    a, unit = mixed_inputs()
    got = run("sync", "mixed", a, unit, env={"MOEC_CPU_ORDER": order})
    want = (a[0].astype(np.float32) + a[1]).ravel()
    assert np.array_equal(got[257:], want[1:])
    assert got[256] == 122  # blockDim 1 on vector cores too, ratio 2, two sub-blocks


@pytest.mark.parametrize("order", ORDERS)
def test_orders_change_nothing(order: str) -> None:
    got = run("sync", "identity", dtype=np.int32, env={"MOEC_CPU_ORDER": order})
    assert np.array_equal(got[:16].reshape(8, 2), [[i, 80] for i in range(8)])
    assert np.array_equal(run("sync", "atomic_cores", TILES[:8], env={"MOEC_CPU_ORDER": order}), TILES[:8] * 4)


def test_races() -> None:
    message = refusal("sync", "racing_cores", TILES[:8])
    assert (
        "unsynchronised cores" in message
        and f"sync.cpp:{line_of('sync', 'racing')}" in message
        and "on core 0" in message
    )
    message = refusal("sync", "through_memory", TILES[:8])
    assert "MTE3_MTE2" in message and f"sync.cpp:{line_of('sync', 'back')}" in message
    message = refusal("sync", "scalar_read", TILES[:8])
    assert "V_S" in message and f"sync.cpp:{line_of('sync', 'scalar')}" in message


def test_no_false_alarms() -> None:
    x = TILES[:8].astype(np.float16)
    got = run("sync", "neighbours", x, dtype=np.float16)
    assert np.array_equal(got[:10], np.concatenate([x[:5], x[:5]]))
    got = run("sync", "sub_block", dtype=np.float16)
    assert list(got[:2]) == [1, 2] and (got[16:] == 3).all()
    assert np.array_equal(run("sync", "queues", TILES, env={"MOEC_CPU_STRICT": "1"}), TILES * np.float32(3))


def test_counts(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    run("sync", "tiles", TILES, env={"MOEC_CPU_STATS": str(path)})
    (launch,) = json.loads(path.read_text())["launches"]
    assert (launch["kernel"], launch["type"], launch["block_dim"]) == ("tiles", "AIV_ONLY", 1)
    counts = {(i["pipe"], i["op"]): (i["count"], i["bytes"], i["repeats"]) for i in launch["instructions"]}
    assert counts == {
        ("MTE2", "DataCopy"): (4, 1024, 0),
        ("MTE3", "DataCopy"): (4, 1024, 0),
        ("V", "Adds"): (4, 1024, 4),
        ("V", "Muls"): (4, 1024, 4),
        ("V", "PipeBarrier"): (4, 0, 0),
        ("V", "SetFlag"): (9, 0, 0),  # V_MTE2 once before and four times inside the loop, V_MTE3 four times
        ("MTE2", "SetFlag"): (4, 0, 0),
        ("MTE3", "SetFlag"): (5, 0, 0),
        ("MTE2", "WaitFlag"): (5, 0, 0),
        ("V", "WaitFlag"): (9, 0, 0),
        ("MTE3", "WaitFlag"): (4, 0, 0),
    }


def test_counts_of_the_cube(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    run("sync", "mixed", *mixed_inputs(), env={"MOEC_CPU_STATS": str(path)})
    (launch,) = json.loads(path.read_text())["launches"]
    counts = {(i["pipe"], i["op"]): i for i in launch["instructions"]}
    assert launch["type"] == "MIX_AIC_1_2"
    mmad = counts["M", "Mmad"]
    assert (mmad["count"], mmad["mnk"], mmad["bytes"]) == (2, 2 * 16**3, 2 * (16 + 16) * 16 * 2)
    assert (counts["MTE1", "LoadData"]["count"], counts["MTE1", "LoadData"]["bytes"]) == (3, 1536)
    assert (counts["FIX", "Fixpipe"]["count"], counts["FIX", "Fixpipe"]["bytes"]) == (2, 2048)
    assert counts["MTE2", "DataCopy"]["bytes"] == 3 * 512 + 2 * 2 * 512
