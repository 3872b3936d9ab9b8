"""A kernel's synchronisation statements, left out one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from moec.codegen.hazards import is_site
from moec.codegen.kernel_ir import For, If, Stmt


def without_each(block: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    """Each synchronisation statement with the block that lacks it."""
    for i, s in enumerate(block):
        head, tail = block[:i], block[i + 1 :]
        if is_site(s):
            yield s, (*head, *tail)
        elif isinstance(s, For):
            for site, body in without_each(s.body):
                yield site, (*head, replace(s, body=body), *tail)
        elif isinstance(s, If):
            for site, body in without_each(s.then):
                yield site, (*head, replace(s, then=body), *tail)
            for site, body in without_each(s.orelse):
                yield site, (*head, replace(s, orelse=body), *tail)
