"""Texts and inputs for the tests of kernels that move elements."""

from __future__ import annotations

import numpy as np
from vector_run import Layer, numbers

from moec.codegen.capacities import Capacities
from moec.codegen.hazards import check
from moec.codegen.lower import lower_module
from moec.ir.text import parse_module


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in ("i32", "i64"):
        return rng.integers(-(2**31), 2**31, shape).astype(np.int32 if dtype == "i32" else np.int64)
    return numbers(rng, shape, dtype)


def module(given: str, lines: list[tuple[str, str]], symbols: str = "T in [0, 5000]") -> str:
    """A module whose outputs y0, y1, ... are ``lines``: (expression, type)."""
    made = ", ".join(f"y{i}: {kind}" for i, (_, kind) in enumerate(lines))
    body = "\n".join(f"  %y{i} = {text} : {kind}" for i, (text, kind) in enumerate(lines))
    returned = ", ".join(f"%y{i}" for i in range(len(lines)))
    head = "\n".join(f"symbol {s}" for s in symbols.split("; "))
    return f"{head}\nfunc main({given}) -> ({made}) {{\n{body}\n  return {returned}\n}}\n"


def same(layer: Layer, arrays: dict[str, np.ndarray], **environment: str) -> None:
    got, want = layer.run(arrays, **environment), layer.reference(arrays)
    for name, w in want.items():
        np.testing.assert_array_equal(got[name].view(w.dtype).reshape(w.shape), w, name)


def unsynchronised(text: str) -> list[str]:
    """Kernels of a module that the static check finds something against, at any of their sizes."""
    program = lower_module(parse_module(text), Capacities(aic=2, aiv=2), {})
    return [f"{kernel.name}: {check(kernel)[0]}" for kernel in program.kernels if check(kernel)]
