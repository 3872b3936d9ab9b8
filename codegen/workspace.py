"""What a program needs of device memory besides what goes in and comes out."""

from __future__ import annotations

from collections.abc import Mapping

from moec.codegen.program import Program
from moec.ir.symbol import evaluate


def workspace_bytes(program: Program, sizes: Mapping[str, int]) -> int:
    """Most bytes at one step of the temporaries that are no outputs, each freed after its last use."""
    outputs = {o.tensor for o in program.outputs}
    lives = [
        (life, int(evaluate(program.tensor(name).bytes, sizes)))
        for name, life in program.lifetimes().items()
        if name not in outputs
    ]
    return max((sum(size for (a, b), size in lives if a <= i <= b) for i in range(len(program.steps))), default=0)
