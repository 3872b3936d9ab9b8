"""HCCL of the CPU model: what ranks get, in the order of the reference; and what ends a run with a message."""

from __future__ import annotations

import os
import re
import subprocess

import ml_dtypes
import numpy as np
import pytest
from cpu_model_harness import REFUSED, build

from moec.ir.group import Group
from moec.ops import OPS

TYPES = {"int8": 0, "int16": 1, "int32": 2, "float16": 3, "float32": 4, "int64": 5, "uint8": 7, "bfloat16": 11}
REDUCTIONS = {"sum": 0, "max": 2, "min": 3}


def run(case: str, ranks: int, *more: int, data: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [str(build("hccl")), case, str(ranks), *map(str, more)]
    return subprocess.run(command, input=data, capture_output=True, timeout=60, env=dict(os.environ) | env)


def ranks_of(case: str, xs: list[np.ndarray], *more: int) -> list[np.ndarray]:
    """What each rank gets, all of them alike in size unless the case says otherwise."""
    done = run(case, len(xs), *more, data=b"".join(x.tobytes() for x in xs))
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    return np.frombuffer(done.stdout, xs[0].dtype)  # type: ignore[return-value]


def operands(dtype: np.dtype, ranks: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(ranks)
    xs = rng.standard_normal((ranks, count)) * 50
    return [x.astype(dtype) for x in xs]


def reference(op: str, xs: list[np.ndarray], **attrs: object) -> np.ndarray:
    """The layer IR's reference, in f32 for 16-bit floats, rounded once."""
    wide = [x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x for x in xs]
    group = Group("g", len(xs), 1)
    return np.concatenate([np.asarray(y).astype(xs[0].dtype) for y in OPS[op].ref(wide, group=group, **attrs)])


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "float16", "float32", "int64", "bfloat16"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_sums_run_in_the_order_of_the_ranks(name: str, reduction: str) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    xs = operands(dtype, 3, 12)
    numbers = TYPES[name], REDUCTIONS[reduction]
    for op in ("all_reduce", "reduce_scatter"):
        more = {} if op == "all_reduce" else {"axis": 0}
        want = reference(op, xs, reduction=reduction, **more)
        assert ranks_of(op, xs, *numbers).tobytes() == want.tobytes(), op  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["uint8", "float32", "bfloat16"])
def test_moves(name: str) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    xs = operands(dtype, 4, 8)
    gathered = reference("all_gather", xs, axis=0)
    assert ranks_of("all_gather", xs, TYPES[name]).tobytes() == gathered.tobytes()  # type: ignore[attr-defined]
    swapped = reference("all_to_all", xs, split_axis=0, concat_axis=0)
    assert ranks_of("all_to_all", xs, TYPES[name]).tobytes() == swapped.tobytes()  # type: ignore[attr-defined]
    told = ranks_of("broadcast", xs, TYPES[name], 2)
    assert told.tobytes() == b"".join([xs[2].tobytes()] * 4)  # type: ignore[attr-defined]
    counts = [np.array([(i + j) % 3 for j in range(4)]) for i in range(4)]
    short = [x[: c.sum()] for x, c in zip(xs, counts, strict=True)]
    want = np.concatenate(OPS["all_to_all_v"].ref(short, counts, counts, group=Group("g", 4, 1), rows=None))
    assert ranks_of("all_to_all_v", xs, TYPES[name]).tobytes() == want.tobytes()  # type: ignore[attr-defined]


MISUSES = {
    "swapped": "collectives over all ranks do not match: "
    "(rank 0 calls HcclAllReduce of 4 float32 at .*, rank 1 calls HcclAllGather"
    "|rank 1 calls HcclAllGather of 4 float32 at .*, rank 2 calls HcclAllReduce)",
    "sizes": "rank 2 calls HcclAllReduce of 5 float32",
    "types": "rank 2 calls HcclAllGather of 4 int32",
    "lists": "rank 1 calls HcclAlltoAllV of 3 float32 at .* expects 2 elements of rank 2, which sends 1",
    "early": "deadlock: ranks wait for one another in vain; "
    "rank 0, 2 in HcclAllReduce of 4 float32 over all ranks at .*; rank 1 at the end",
    "crossed": "deadlock: .*rank 0 in HcclAllReduce of 4 float32 over pair01 at .*; "
    "rank 1 in .* over pair12 .*; rank 2 in .* over pair02",
    "unwritten": "HcclAllReduce sends memory that nothing has written",
    "in_place": "HcclAlltoAll in place",
    "race": "streams touch the same memory unordered .*"
    r"HcclAllGather reads what a task of another stream, submitted at .*hccl.cpp:\d+, writes",
}


@pytest.mark.parametrize(("case", "pattern"), MISUSES.items())
def test_what_ends_a_run(case: str, pattern: str) -> None:
    done = run(case, 3)
    assert done.returncode == REFUSED, done
    assert re.search(pattern, done.stderr.decode()), done.stderr.decode()


def test_a_rank_that_dies_stops_the_others() -> None:
    done = run("dies", 3)
    assert done.returncode == 87 and done.stderr.decode().count("stops: rank 1 has stopped") == 2


def test_a_rank_that_never_comes_is_named() -> None:
    done = run("absent", 3, MOEC_CPU_JOIN="1")
    assert done.returncode == REFUSED and "rank 2 has not joined within 1 seconds" in done.stderr.decode()


@pytest.mark.parametrize("case", ["ordered", "crossed_streams", "not_reduced"])
def test_what_is_right(case: str) -> None:
    """Collectives of different groups on streams of their own need no common order."""
    done = run(case, 3)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done
