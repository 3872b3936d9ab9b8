"""Writes aclrtlaunch_<kernel>.h for host code that includes it, as CANN's kernel build does.

    python3 launch_headers.py KERNEL.cpp ... -o FOLDER

Add FOLDER to the include path of the host. The header only brings in acl/acl.h: on the CPU model
``ACLRT_LAUNCH_KERNEL(name)`` finds a kernel by its symbol. Host code that tests for the header with
``#if __has_include("aclrtlaunch_<kernel>.h")`` needs none of this.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+__aicore__\s+void\s+(\w+)\s*\(')


def kernels(text: str) -> list[str]:
    """Names of the kernels that a source file defines, in order."""
    return KERNEL.findall(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write aclrtlaunch_<kernel>.h files for a host program.")
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("."))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for source in args.sources:
        for name in kernels(source.read_text()):
            header = args.output / f"aclrtlaunch_{name}.h"
            header.write_text('#pragma once\n#include "acl/acl.h"\n')
            print(header.name)


if __name__ == "__main__":
    main()
