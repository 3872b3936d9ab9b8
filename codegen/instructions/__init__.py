"""The instruction table: ``INSTRUCTIONS[name]`` is the one declaration of each AscendC call that moec emits."""

from moec.codegen.instructions import copy, cube, layout, reduce, vector  # noqa: F401  (they fill the table)
from moec.codegen.instructions.spec import INSTRUCTIONS, InstrSpec, Operand, Param, Resolved, Work

__all__ = ["INSTRUCTIONS", "InstrSpec", "Operand", "Param", "Resolved", "Work"]
