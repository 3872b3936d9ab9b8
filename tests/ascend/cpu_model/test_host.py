"""The host side: error codes as CANN gives them, argument passing, lazy streams, and what is refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from cpu_model_harness import MODEL, compile_command, execute, line_of, refusal


def test_error_codes_arguments_and_events() -> None:
    done = execute("host", "ok")
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "", "")


@pytest.mark.parametrize(
    ("case", "pattern"),
    [
        ("no_sync", "aclrtMemcpy of a buffer that is still in use .*scale, submitted at .*aclrtSynchronizeStream"),
        ("freed_in_use", "aclrtFree of a buffer that is still in use"),
        ("copy_range", r"aclrtMemcpy out of range .*\[0, 128\) of a buffer of 64 bytes"),
        ("copy_direction", "wrong direction"),
        ("copy_freed", "use of freed global memory"),
        ("bad_stream", "stream that does not exist"),
        ("device_function", "device function outside a kernel"),
    ],
)
def test_host_refusals(case: str, pattern: str) -> None:
    message = refusal("host", case)
    assert re.search(pattern, message), message
    assert f"in host at {Path(line_file()).as_posix()}:{line_of('host', case)}" in message


def line_file() -> str:
    from cpu_model_harness import PROGRAMS

    return str(PROGRAMS / "host.cpp")


@pytest.mark.parametrize(
    ("case", "pattern"),
    [
        ("after_free", "use of freed global memory"),
        ("host_pointer", "outside any allocation"),
        ("pinned_pointer", "host memory in a kernel"),
    ],
)
def test_kernel_sees_bad_pointers(case: str, pattern: str) -> None:
    message = refusal("host", case)
    assert re.search(pattern, message) and "in kernel scale at" in message


KERNEL = """
#include "kernel_operator.h"
extern "C" __global__ __aicore__ void fill(GM_ADDR x, uint32_t n)
{
    AscendC::GlobalTensor<int32_t> g;
    g.SetGlobalBuffer((__gm__ int32_t*)x);
    for (uint32_t i = 0; i < n; ++i) g.SetValue(i, 7);
}
"""
HOST = """
#include <cstdio>
#include "acl/acl.h"
#include "aclrtlaunch_fill.h"
int main()
{
    aclInit(nullptr);
    aclrtSetDevice(0);
    void* x;
    aclrtMalloc(&x, 32, ACL_MEM_MALLOC_HUGE_FIRST);
    ACLRT_LAUNCH_KERNEL(fill)(1, nullptr, x, 8);
    aclrtSynchronizeDevice();
    int y[8];
    aclrtMemcpy(y, 32, x, 32, ACL_MEMCPY_DEVICE_TO_HOST);
    std::printf("%d %d", y[0], y[7]);
}
"""


def test_separate_files_and_generated_launch_headers(tmp_path: Path) -> None:
    """Kernel and host in files of their own, the host with CANN's include; launch_headers.py writes that header."""
    (tmp_path / "k.cpp").write_text(KERNEL)
    (tmp_path / "main.cpp").write_text(HOST)
    made = subprocess.run(
        ["python3", str(MODEL / "launch_headers.py"), str(tmp_path / "k.cpp"), "-o", str(tmp_path / "gen")],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0 and made.stdout.split() == ["aclrtlaunch_fill.h"], made.stderr
    command = compile_command(
        [tmp_path / "k.cpp", tmp_path / "main.cpp"], tmp_path / "run", "-I", str(tmp_path / "gen")
    )
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert subprocess.run([tmp_path / "run"], capture_output=True, text=True).stdout == "7 7"


BAD_TYPES = {
    "Add(b, b, b, 16);": "Add: types half, float, int16_t, int32_t",
    "Muls(u, u, 2u, 16);": "Muls: types",
    "Exp(i, i, 16);": "Exp: types half, float",
    "Cast(b, i, RoundMode::CAST_RINT, 16);": "no such conversion",
    "Mmad(f, f, h, MmadParams());": "Mmad: half, bfloat16_t or float to float",
    "ReduceSum(i, i, i, 16);": "ReduceSum: half or float",
    "And(i, i, i, 16);": "And: types int16_t, uint16_t",
    "SetAtomicAdd<uint32_t>();": "SetAtomicAdd: float",
    "Sort32(i, i, u, 1);": "Sort32: half or float",
    "Select(i, m, i, i, SELMODE::VSEL_TENSOR_TENSOR_MODE, 16);": "Select: half or float",
}


def test_types_that_the_chip_lacks_do_not_compile(tmp_path: Path) -> None:
    """One program, every line wrong: each static_assert speaks."""
    lines = "\n".join(BAD_TYPES)
    (tmp_path / "bad.cpp").write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\nvoid bad() {\n'
        "LocalTensor<bfloat16_t> b; LocalTensor<uint32_t> u; LocalTensor<int32_t> i;\n"
        "LocalTensor<float> f; LocalTensor<half> h; LocalTensor<uint8_t> m;\n"
        f"{lines}\n}}\n"
    )
    command = ["g++", "-std=c++17", "-fsyntax-only", "-I", str(MODEL), str(tmp_path / "bad.cpp")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    for text in BAD_TYPES.values():
        assert text in done.stderr, text
