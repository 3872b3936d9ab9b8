"""Which functions of ``moec.codegen`` write kernels, read from its source; and which of them wrote a given kernel."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

from moec import codegen
from moec.codegen.builder import KernelBuilder
from moec.codegen.kernel_ir import Kernel
from moec.codegen.scalar import Scalar

ROOT = Path(str(codegen.__file__)).parent


@dataclass(frozen=True, order=True)
class Writer:
    """A place that makes a KernelBuilder: file below codegen, line, enclosing function."""

    file: str
    line: int
    function: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.file.removesuffix('.py')}:{self.function}"


def writers() -> set[Writer]:
    """Every one that the source of codegen has."""
    return {w for path in sorted(ROOT.rglob("*.py")) for w in _of(path)}


def _of(path: Path) -> Iterator[Writer]:
    file = str(path.relative_to(ROOT))

    def walk(node: ast.AST, inside: str) -> Iterator[Writer]:
        for child in ast.iter_child_nodes(node):
            name = inside
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{inside}.{child.name}".lstrip(".")
            elif isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == "KernelBuilder":
                yield Writer(file, child.lineno, inside)
            yield from walk(child, name)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), "")


_wrote: dict[Kernel, Writer] = {}


def writer_of(kernel: Kernel) -> Writer:
    """Who wrote a kernel since ``note`` was called."""
    return _wrote[replace(kernel, name="", source=())]


def note() -> None:
    """From here on remembers who writes which kernel."""
    if hasattr(KernelBuilder.finish, "__wrapped__"):
        return
    begin, finish = KernelBuilder.__init__, KernelBuilder.finish

    @wraps(begin)
    def begun(self: KernelBuilder, *args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT):
            self.__dict__["writer"] = Writer(str(path.relative_to(ROOT)), frame.f_lineno, frame.f_code.co_qualname)
        begin(self, *args, **kwargs)

    @wraps(finish)
    def finished(self: KernelBuilder, blocks: Scalar = 1) -> Kernel:
        made = finish(self, blocks)
        if "writer" in self.__dict__:
            _wrote[replace(made, name="", source=())] = self.__dict__["writer"]
        return made

    replaced: list[tuple[str, Callable[..., Any]]] = [("__init__", begun), ("finish", finished)]
    for name, function in replaced:
        setattr(KernelBuilder, name, function)
