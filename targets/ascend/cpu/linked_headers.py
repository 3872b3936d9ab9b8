"""Writes a copy of the headers in which functions that are no templates, and variables, are declared only.

    python3 linked_headers.py FOLDER
    g++ -std=c++17 -O1 -I targets/ascend/cpu -c targets/ascend/cpu/runtime/runtime.cpp -o runtime.o     (once)
    g++ -std=c++17 -O1 -I FOLDER -c targets/ascend/cpu/runtime/instances.cpp -o instances.o             (once)
    g++ -std=c++17 -O1 -I FOLDER kernels/*.cpp host/main.cpp runtime.o instances.o -o run

Same program, shorter builds: each kernel file no longer compiles the whole model. linkage.h explains the marks.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
MARK = "MOEC_CPU_FN"
VARIABLE = re.compile(r"^MOEC_CPU_VAR ([^=;]*?)( = [^;]*)?;", re.MULTILINE)
LINKED = "#define MOEC_CPU_LINKED\n"


def skip(text: str, at: int, opening: str, closing: str) -> int:
    """Index after the bracket that closes the one at ``at``; quoted text does not count."""
    depth = 0
    while at < len(text):
        c = text[at]
        if c in "\"'":
            end = at + 1
            while text[end] != c:
                end += 2 if text[end] == "\\" else 1
            at = end
        elif text.startswith("//", at):
            at = text.index("\n", at)
        elif c == opening:
            depth += 1
        elif c == closing:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    raise ValueError(f"no closing {closing}")


def declare_only(text: str) -> str:
    """``text`` without the bodies of marked functions and the values of marked variables."""
    text = VARIABLE.sub(r"extern \1;", text)
    out, at = [], 0
    while (mark := text.find(MARK + " ", at)) >= 0:
        parameters = skip(text, text.index("(", mark), "(", ")")
        out.append(text[at:mark])
        out.append(text[mark + len(MARK) + 1 : parameters])
        rest = parameters
        while text[rest] not in "{:;":
            rest += 1
        out.append(text[parameters:rest].rstrip())
        if text[rest] == ":":  # constructor: the initialisers have round brackets only
            rest = text.index("{", rest)
        at = rest + 1 if text[rest] == ";" else skip(text, rest, "{", "}")
        out.append(";")
    return "".join([*out, text[at:]])


def write(folder: Path) -> None:
    """Mirrors every header of the model into ``folder``."""
    for header in sorted(HERE.rglob("*.h")):
        target = folder / header.relative_to(HERE)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = header.read_text()
        target.write_text(text + LINKED if header.name == "linkage.h" else declare_only(text))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write headers that need runtime.cpp's object at link time.")
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
