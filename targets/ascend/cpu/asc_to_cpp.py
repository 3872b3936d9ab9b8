"""Turns an .asc source (kernel launches written name<<<blocks, buffer, stream>>>(args)) into C++ for the CPU model.

    python3 asc_to_cpp.py SAMPLE.asc -o SAMPLE.cpp

Only the launches are rewritten, in place, so that line numbers stay. The kind of cores comes from the qualifiers of the
kernel: __vector__, __cube__, __mix__(cubes, vectors); without one it is found at run time, as for any kernel.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

QUALIFIER = (
    r"(?:__global__|__aicore__|__vector__|__cube__|__mix__\s*\(\s*\d\s*,\s*\d\s*\)|extern\s+\"C\"|inline|static|void)"
)
KERNEL = re.compile(rf"((?:{QUALIFIER}\s+)*__global__\s+(?:{QUALIFIER}\s+)*)(\w+)\s*\(")
LAUNCH = re.compile(r"([A-Za-z_][\w:]*)((?:<[^<>;]*(?:<[^<>;]*>[^<>;]*)*>)?)\s*<<<(.*?)>>>\s*\(", re.DOTALL)
TYPES = {(0, 1): "MIX_AIV_1_0", (1, 0): "MIX_AIC_1_0", (1, 1): "MIX_AIC_1_1", (1, 2): "MIX_AIC_1_2"}


def kernel_type(qualifiers: str) -> str:
    """The launch's type argument for the qualifiers in front of a kernel."""
    mix = re.search(r"__mix__\s*\(\s*(\d)\s*,\s*(\d)\s*\)", qualifiers)
    if mix:
        return f"KERNEL_TYPE_{TYPES[int(mix[1]), int(mix[2])]}"
    if "__vector__" in qualifiers:
        return "KERNEL_TYPE_AIV_ONLY"
    return "KERNEL_TYPE_AIC_ONLY" if "__cube__" in qualifiers else "-1"


def split_arguments(text: str) -> list[str]:
    """Top-level commas."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "([{"
        depth -= c in ")]}"
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]


def translate(text: str) -> str:
    kinds = {m[2]: kernel_type(m[1]) for m in KERNEL.finditer(text)}

    def launch(m: re.Match[str]) -> str:
        name, template, configuration = m[1], m[2], split_arguments(m[3])
        kind = kinds.get(name.split("::")[-1], "-1")
        stream = configuration[2] if len(configuration) > 2 else "nullptr"
        head = f'::moec_cpu::launch_function("{name}", {kind}, {configuration[0]}, {stream}, {name}{template})('
        return head + "\n" * (m[0].count("\n") - head.count("\n"))

    return LAUNCH.sub(launch, text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rewrite kernel launches of an .asc file as C++.")
    parser.add_argument("source", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.write_text(translate(args.source.read_text()))


if __name__ == "__main__":
    main()
