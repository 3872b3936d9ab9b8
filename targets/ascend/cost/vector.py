"""Cycles of vector instructions.

Each AscendC call is named after the measured machine instruction it becomes; ``data/vector.csv`` has its fit. Measured
two-source instructions take 2 cycles a repeat because both sources were in one bank group; without that conflict they
take 1, and a result written into the banks that are read costs 0.77 more (CANN asc-devkit examples, bank_conflict_ub;
moec.targets.ascend.cost.banks says in which repeats). Where nothing is known of addresses, sources are taken to meet.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

from moec.targets.ascend.cost.table import VectorFit, vector_fits
from moec.targets.ascend.machine import Machine

MACHINE_NAME = {
    "Add": "VADD", "Sub": "VSUB", "Mul": "VMUL", "Max": "VMAX", "Min": "VMIN", "Div": "VDIV", "And": "VAND",
    "Or": "VOR", "MulAddDst": "VMLA", "Adds": "VADDS", "Muls": "VMULS", "Maxs": "VMAXS", "Mins": "VMINS",
    "LeakyRelu": "VLRELU", "Axpy": "VAXPY", "ShiftLeft": "VSHL", "ShiftRight": "VSHR", "Exp": "VEXP", "Ln": "VLN",
    "Sqrt": "VSQRT", "Rsqrt": "VRSQRT", "Reciprocal": "VREC", "Abs": "VABS", "Relu": "VRELU", "Not": "VNOT",
    "Cast": "VCONV", "Compare": "VCMPV", "CompareScalar": "VCMPVS", "Select": "VSEL", "SelectScalar": "VSEL",
    "WholeReduceSum": "VCADD", "WholeReduceMax": "VCMAX", "WholeReduceMin": "VCMIN", "BlockReduceSum": "VCGADD",
    "BlockReduceMax": "VCGMAX", "BlockReduceMin": "VCGMAX", "PairReduceSum": "VCPADD", "Duplicate": "VECTORDUP",
    "ArithProgression": "VADDS", "Brcb": "VBRCB", "Copy": "VCOPY", "DataCopy": "VCOPY", "DataCopyBlocks": "VCOPY",
    "Gather": "VGATHER", "Gatherb": "VGATHERB", "GatherMask": "VREDUCEV2", "MrgSort": "VMRGSORT",
}  # fmt: skip
"""AscendC call -> measured instruction; ArithProgression as Adds and BlockReduceMin as its Max are inferred."""

ARITHMETIC = frozenset(
    [
        "Add",
        "Sub",
        "Mul",
        "Max",
        "Min",
        "Div",
        "MulAddDst",
        "Adds",
        "Muls",
        "Maxs",
        "Mins",
        "LeakyRelu",
        "Axpy",
        "Exp",
        "Ln",
        "Sqrt",
        "Rsqrt",
        "Reciprocal",
        "Abs",
        "Relu",
        "WholeReduceSum",
        "WholeReduceMax",
        "WholeReduceMin",
        "BlockReduceSum",
        "BlockReduceMax",
        "BlockReduceMin",
        "PairReduceSum",
    ]
)
"""Calls whose elements count as one FLOP each."""

TWO_SOURCES = frozenset(["Add", "Sub", "Mul", "Max", "Min", "And", "Or", "Select", "Compare"])
IN_STEP = TWO_SOURCES | frozenset(
    ["Adds", "Muls", "Maxs", "Mins", "LeakyRelu", "Axpy", "Abs", "Relu", "Not", "ShiftLeft", "ShiftRight", "Reciprocal",
     "Rsqrt", "Exp", "Ln", "Sqrt"]
)  # fmt: skip
"""Calls that write a block for every block they read, in the same order."""
REDUCTIONS = {"ReduceSum": "WholeReduceSum", "ReduceMax": "WholeReduceMax", "ReduceMin": "WholeReduceMin"}
SORT32_CYCLES = 16  # per repeat of 32 scores: mskpp lists 15.97 for one (vector_binary_instr_prof.py)
NAMES = {
    "f32": ("FP32", "UINT32", "INT32"), "i32": ("INT32", "FP32", "UINT32"), "u32": ("UINT32", "INT32", "FP32"),
    "f16": ("FP16", "UINT16", "INT16"), "bf16": ("BF16", "FP16", "UINT16"), "i16": ("INT16", "FP16", "UINT16"),
    "u16": ("UINT16", "INT16", "FP16"), "i64": ("INT64", "FP32", "INT32"), "u64": ("INT64", "FP32", "INT32"),
    "i8": ("INT8", "UINT8"), "u8": ("UINT8", "INT8"),
}  # fmt: skip
"""dtype -> its name in the table, then those of equal width that stand in where it was not measured (inferred)."""


def base_name(op: str) -> str:
    """``Add.rep`` and ``WholeReduceMax.value`` are ``Add`` and ``WholeReduceMax``."""
    return op.partition(".")[0]


@lru_cache(maxsize=4096)
def fit_of(op: str, source: str, result: str) -> VectorFit:
    """The fit of AscendC call ``op`` from dtype ``source`` to ``result``. KeyError for one never measured."""
    name = MACHINE_NAME[base_name(op)]
    if base_name(op) in ("Compare", "CompareScalar"):
        result = source  # the result is a bit mask; the table repeats the source's dtype
    for first, last in product(NAMES[source], NAMES[result]):
        for (instruction, signature), fit in vector_fits().items():
            parts = signature.split("_")
            if instruction == name and parts[0] == first and parts[-1] == last:
                return fit
    raise KeyError(f"{op} was measured for no dtypes like {source} -> {result}")


def vector_cycles(
    machine: Machine, op: str, source: str, result: str, repeats: int, reads: float = 1.0, write: float = 0.0
) -> int:
    """Cycles call ``op`` holds the vector pipe for ``repeats`` repeats; a call of no repeat takes none.

    ``reads`` and ``write``: shares of repeats in which two sources, or a source and the result, meet in a bank. More
    repeats than one instruction takes are issued as several.
    """
    if repeats <= 0:
        return 0
    name = base_name(op)
    if name == "Sort32":
        return SORT32_CYCLES * repeats
    if name in REDUCTIONS:
        return _reduction_cycles(machine, REDUCTIONS[name], source, repeats)
    fit = fit_of(op, source, result)
    rate = fit.rate
    if name in TWO_SOURCES:
        clean = rate / machine["vector.conflict"]
        rate = clean + reads * (rate - clean)
    if name in IN_STEP:
        rate = max(rate, 1 + write * (machine["vector.read_write"] - 1))
    most = int(machine["vector.max_repeats"])
    whole, rest = divmod(repeats, most)
    cycles = whole * math.ceil(max(fit.floor, fit.base + rate * most))
    return cycles + (math.ceil(max(fit.floor, fit.base + rate * rest)) if rest else 0)


def _reduction_cycles(machine: Machine, whole: str, dtype: str, repeats: int) -> int:
    """Software loop: each round leaves one value a repeat, until one repeat is left; rounds depend on one another."""
    per_repeat = int(machine["vector.repeat_bytes"]) // (4 if dtype == "f32" else 2)
    total = 0
    while True:
        total += vector_cycles(machine, whole, dtype, dtype, repeats)
        if repeats == 1:
            return total
        repeats = -(-repeats // per_repeat)
        total += int(machine["vector.drain"])
