"""Every refusal: exit code 86, one line that names the kernel, the line and the core, and says what to do."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cpu_model_harness import line_of, refusal

VECTOR = {
    "misaligned_copy": "misaligned operand .*dst starts at byte 4 of UB, which must be a multiple of 32",
    "ragged_copy": "ragged length .*20 bytes.*DataCopyPad",
    "misaligned_vector": "misaligned operand .*src0 starts at byte 8",
    "repeat_too_large": "value 256 does not fit the 8-bit unsigned parameter",
    "stride_too_large": "value 300 does not fit the 8-bit",
    "mask_too_large": "mask out of range .*mask 65: 1..64",
    "mask_empty": "mask out of range .*mask 0",
    "overlap_inside": "operands overlap in part",
    "overlap_across": "operands overlap across repeats .*src of repeat 1",
    "beyond_view": r"outside the buffer .*\[16384, 16896\) of UB, the buffer is \[16384, 16640\)",
    "never_written": r"never written .*\[10240, 10496\) of UB",
    "block_count": "block count out of range .*4096",
    "field_16_bits": "value 65536 does not fit the 16-bit",
    "pad_too_long": "padding too long",
    "gm_out_of_range": r"global memory access out of range .*\[0, 64\) of a buffer of 32 bytes",
    "gm_no_memory": "outside any allocation",
    "gm_bound": r"out of range .*\[0, 32\) of a tensor that SetGlobalBuffer bounds to 16 bytes",
    "gm_never_written": "never written .*DataCopyPad at .*nothing valid to put there",
    "ragged_not_padded": "never written",
    "set_twice": "flag set twice .*V_MTE3 id 0",
    "wait_unset": "wait without set .*V_MTE3 id 1",
    "event_range": "event id out of range",
    "flag_left": r"flag left set at the end .*SetFlag<V_MTE3>\(0\)",
    "events_exhausted": "no event id left",
    "capacity": "capacity exceeded .*196608 more bytes of UB after 0, 196352 are usable",
    "static_outside": "outside its memory",
    "too_many_blocks": "too many buffers .*64",
    "second_pipe": "second TPipe",
    "view_outside": "view outside its buffer",
    "cube_on_vector": "wrong core .*ASCEND_IS_AIC",
    "round_mode": "round mode does not fit the types",
    "compare_ragged": "multiple of 256",
    "compare_int32": "EQ only",
    "gather_misaligned": "misaligned gather offset",
    "gather_outside": "outside the buffer",
    "work_too_small": "work buffer too small",
    "merge_valid_bit": "validBit 5: 3, 7 or 15",
    "sort_overlap": "must not share memory",
    "sort_misaligned": "misaligned operand .*dst starts at byte .* of UB, which must be a multiple of 256",
    "atomic_type": "atomic mode of another type",
    "deque_empty": "empty queue",
    "queue_no_buffer": "no free tensor in the queue",
    "free_twice": "freed twice",
    "queue_full": "queue is full .*depth 1",
    "sync_without_mix": "cross-core synchronisation in a kernel of one core kind",
    "trap": "Trap",
    "core_deadlock": "deadlock .*SyncAll",
    "cross_deadlock": r"deadlock .*CrossCoreWaitFlag\(3\)",
    "cross_left": "cross-core flag left set .*flag 3",
    "cross_overflow": "cross-core flag overflow",
    "sync_too_many": "too many blocks .*49",
    "vector_on_cube": "wrong core .*ASCEND_IS_AIV",
}

CUBE = {
    "misaligned_l0a": "misaligned operand .*multiple of 512",
    "misaligned_l0c": "misaligned operand .*C starts at byte 64 of L0C, which must be a multiple of 1024",
    "transpose_float": "16-bit types; use LoadDataWithTranspose",
    "load_into_l1": "wrong memory",
    "load_outside_l0": "outside the buffer",
    "mmad_shape": "m 4096",
    "mmad_never_loaded": "never written",
    "mmad_no_start": "never written .*L0C",
    "fixpipe_rows_beyond": "never written .*L0C",
    "fixpipe_mode": "conversion does not fit the types",
    "fixpipe_out_of_range": "global memory access out of range",
    "unit_flag_alone": "unit flag without its Mmad",
    "nd2nz_field": "value 65536 does not fit the 16-bit",
    "nd2nz_range": "nValue 16385 must be 0..16384",
    "nd2nz_outside": "global memory access out of range",
    "capacity_l0": "capacity exceeded .*L0A",
    "missing_m_fix": "unsynchronised pipes .*M_FIX",
    "missing_mte1_m": "unsynchronised pipes .*MTE1_M",
    "ub_on_cube": "wrong core",
}


def check(program: str, case: str, pattern: str, data: np.ndarray, **env: str) -> str:
    message = refusal(program, case, data, env=env)
    assert re.search(pattern, message), message
    assert f"in kernel {case} at " in message
    assert f"{program}.cpp:{line_of(program, case)} (core " in message
    return message


@pytest.mark.parametrize("case", VECTOR)
def test_vector_refusal(case: str) -> None:
    data = np.zeros(0 if case == "gm_never_written" else 8, np.float32)
    check("refusals", case, VECTOR[case], data)


@pytest.mark.parametrize("case", CUBE)
def test_cube_refusal(case: str) -> None:
    check("refusals_cube", case, CUBE[case], np.zeros(1024, np.float16))


def test_small_mmads_need_a_barrier_when_strict() -> None:
    check(
        "refusals_cube",
        "small_mmad_barrier",
        "missing barrier .*PIPE_M",
        np.zeros(1024, np.float16),
        MOEC_CPU_STRICT="1",
    )


def test_endless_loop_is_refused_only_when_asked() -> None:
    message = check("refusals", "endless", "MOEC_CPU_LIMIT=1000", np.zeros(8, np.float32), MOEC_CPU_LIMIT="1000")
    assert "endless loop" in message


@pytest.mark.parametrize(
    ("case", "pattern"),
    [
        ("raw_pointer", "invalid memory access .*0x8"),
        ("divide_by_zero", "division by zero"),
        ("exception", r"uncaught C\+\+ exception"),
    ],
)
def test_crashes_end_as_refusals(case: str, pattern: str) -> None:
    message = refusal("refusals", case, np.zeros(8, np.float32))
    assert re.search(pattern, message) and f"in kernel {case} at " in message


def test_launch_without_blocks() -> None:
    message = refusal("refusals", "block_dim_zero", np.zeros(8, np.float32))
    assert "launch of block_dim_zero with blockDim 0 in host at" in message
