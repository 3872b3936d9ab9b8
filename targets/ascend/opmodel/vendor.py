"""The vendor's operator names as profiles have them, and what each does (``data/vendor_ops.csv``)."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from moec.targets.ascend.opmodel import attention, conv, index, moves, products, rows
from moec.targets.ascend.opmodel.agree import contradiction, results
from moec.targets.ascend.opmodel.elementwise import PASSES, elementwise, foreach, optimizer
from moec.targets.ascend.opmodel.guess import by_form
from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Work

FILE = Path(__file__).parents[1] / "data" / "vendor_ops.csv"

Describe = Callable[[Sequence[Tensor], Sequence[Tensor]], Work]

ATTENTION = {"forward": attention.forward, "backward": attention.backward, "decode": attention.decode}

FAMILIES: dict[str, Callable[[str], Describe]] = {
    "elementwise": lambda kind: partial(elementwise, kind),
    "optimizer": lambda kind: partial(optimizer, kind),
    "rows": lambda kind: partial(rows.over_rows, kind),
    "gated": lambda kind: partial(rows.gated, kind),
    "rotary": lambda kind: partial(rows.rotary, kind),
    "reduce": lambda kind: partial(rows.reduce, kind=kind),
    "fill": lambda kind: moves.fill,
    "sequence": lambda kind: moves.sequence,
    "copy": lambda kind: moves.copy,
    "strided": lambda kind: moves.strided,
    "transpose": lambda kind: moves.transpose,
    "relayout": lambda kind: moves.relayout,
    "broadcast": lambda kind: moves.broadcast,
    "gather": lambda kind: index.gather,
    "scatter": lambda kind: partial(index.scatter, accumulates=kind == "add"),
    "sort": lambda kind: index.sort,
    "compact": lambda kind: index.compact,
    "topk": lambda kind: index.topk,
    "gating": lambda kind: index.gating,
    "permute": lambda kind: index.permute,
    "unpermute": lambda kind: partial(index.unpermute, weighted=kind == "weighted"),
    "matmul": lambda kind: products.across_ranks if kind == "ranks" else products.matmul,
    "projections": lambda kind: products.projections,
    "grouped_matmul": lambda kind: products.grouped_matmul,
    "convolution": lambda kind: partial(conv.convolution, kind=kind),
    "attention": lambda kind: ATTENTION[kind],
    "cache": lambda kind: moves.into_cache,
}
"""How operators of a family are described, given the family's variant."""


@dataclass(frozen=True, eq=False)
class Known:
    """A described operator: its family and variant, and the description."""

    family: str
    kind: str
    describe: Describe


@lru_cache(maxsize=1)
def table() -> dict[str, Known]:
    """Every known operator name in lower case."""
    found: dict[str, Known] = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            known = Known(row["family"], row["kind"], FAMILIES[row["family"]](row["kind"]))
            found |= {name.lower(): known for name in row["names"].split()}
    return found


COLLECTIVE = re.compile(r"(aclnn)?(hcom|hccl|allreduce|allgather|reducescatter|alltoall|broadcast$)")
"""Names of exchanges between ranks; products that are fused with one are products."""


def describe(op: str, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """The work of one row: an operator of the vendor's by name, an unknown one by what its name or its form says.
    ValueError where its shapes make no sense for its name.
    """
    return described(op, ins, outs)[0]


def described(op: str, ins: Sequence[Tensor], outs: Sequence[Tensor], result: str = "") -> tuple[Work, str]:
    """The work of one row, and what was taken for granted to tell it; ``result``: the dtype of results that the row
    does not give. ValueError where its shapes make no sense for its name.
    """
    if COLLECTIVE.match(op.strip().lower()) and "mat" not in op.lower():
        raise ValueError(f"{op} is a collective: its ranks are not stated")
    known = lookup(op)
    if known is None:
        return _guessed(op, ins, outs)
    outs, note = _stated(known, op, ins, outs, result)
    wrong = contradiction(known.family, known.kind, op, ins, outs)
    if wrong:
        raise ValueError(wrong)
    work = known.describe(ins, outs)
    return products.finished(op, work, ins, outs) if known.family in PRODUCTS else work, note


PRODUCTS = ("matmul", "grouped_matmul")
"""Families whose results a fused kernel passes through the vector cores."""


def _stated(
    known: Known, op: str, ins: Sequence[Tensor], outs: Sequence[Tensor], result: str
) -> tuple[Sequence[Tensor], str]:
    if outs:
        return outs, ""
    likely = results(known.family, known.kind, op, ins, result)
    return likely, "output_shapes: none given, taken from the operands" if likely else ""


def _guessed(op: str, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> tuple[Work, str]:
    """An operator that is not in the table: by its name's parts where its operands fit that, else by their form."""
    named = hinted(op)
    if named is not None:
        try:
            return replace(named.describe(ins, outs), kind=UNKNOWN), f"op: {op} taken for a kind of {named.family}"
        except (ValueError, IndexError, ZeroDivisionError):
            pass
    family, kind, words = by_form(ins, outs)
    note = f"op: unknown {op} taken for {words}"
    try:
        return replace(FAMILIES[family](kind)(ins, outs), kind=UNKNOWN), note
    except (ValueError, IndexError, ZeroDivisionError):
        return unknown(ins, outs), note


@lru_cache(maxsize=4096)
def lookup(op: str) -> Known | None:
    """How to describe ``op``: by its name, or that without prefix, version and fusion suffix; None if unknown."""
    name = op.strip().lower()
    bare = re.sub(r"^(aclnn|npu_|inplace)+", "", name)
    if bare.startswith("foreach"):
        return Known("foreach", "", partial(foreach, _foreach_kind(bare)))
    known = table()
    for key in (name, bare, re.sub(r"(v\d+|d)$", "", bare), re.split(r"[+(/ _]", bare)[0]):
        if key in known:
            return known[key]
    return None


HINTS: tuple[tuple[str, str, str], ...] = (
    (r"grouped_?mat", "grouped_matmul", ""), (r"mat_?mul|gemm|linear", "matmul", ""),
    (r"attention.*grad", "attention", "backward"), (r"paged|incre|decode.*attention", "attention", "decode"),
    (r"attention", "attention", "forward"), (r"conv\d?d", "convolution", "forward"), (r"cache", "cache", ""),
    (r"swiglu.*grad|glu.*grad", "gated", "swiglu_grad"), (r"swiglu|geglu|glu$", "gated", "swiglu"),
    (r"rotary|rope", "rotary", "rope"), (r"unpermute|finalize|combine", "unpermute", "weighted"),
    (r"permute|routing|dispatch", "permute", ""), (r"gating|moe.*topk", "gating", ""), (r"top_?k", "topk", ""),
    (r"sort", "sort", ""), (r"rms_?norm.*grad", "rows", "rms_norm_grad"), (r"rms_?norm", "rows", "rms_norm"),
    (r"norm.*grad", "rows", "layer_norm_grad"), (r"layer_?norm|group_?norm", "rows", "layer_norm"),
    (r"softmax.*grad", "rows", "softmax_grad"), (r"softmax", "rows", "softmax"), (r"pool", "rows", "pool"),
    (r"adam|lamb|momentum|optimizer", "optimizer", "adam"), (r"scatter|index.*(put|add)", "scatter", "add"),
    (r"gather|embedding|index|take", "gather", ""), (r"transpose", "transpose", ""),
    (r"concat|slice|split|pad|roll|flip", "strided", ""), (r"broadcast|tile|expand|repeat", "broadcast", ""),
    (r"reduce|sum|mean|norm", "reduce", "add"), (r"zero|fill|ones|memset", "fill", ""), (r"copy|move", "copy", ""),
    (r"quant", "rows", "quant"), (r"gelu", "elementwise", "gelu"),
)  # fmt: skip
"""What parts of a name say of an operator that is not in the table: pattern, family, variant; the first that fits."""

UNKNOWN = "unknown"
"""The kind of an operator that is not in the table."""


@lru_cache(maxsize=4096)
def hinted(op: str) -> Known | None:
    """How to describe an unknown operator by what its name says; None where it says nothing."""
    name = op.strip().lower()
    for pattern, family, kind in HINTS:
        if re.search(pattern, name):
            return Known(family, kind, FAMILIES[family](kind))
    return None


def _foreach_kind(name: str) -> str:
    inner = re.sub(r"(list|scalar|tensor|inplace|v2)+$", "", name.removeprefix("foreach"))
    return inner if inner in PASSES else {"norm": "square", "addcdiv": "div", "addcmul": "mul"}.get(inner, "add")


GENERAL_START, GENERAL_BYTE = 110_000.0, 0.8
"""Cycles to start an operator on the chip's general-purpose cores and for a byte there (inferred: 60 us, 2 GB/s)."""


def on_host_cores(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """An operator that runs on the chip's general-purpose cores."""
    reads, writes = sum(t.bytes for t in ins), sum(t.bytes for t in outs)
    return Work("general", reads, writes, single=GENERAL_START + GENERAL_BYTE * (reads + writes), operands=len(ins))


def unknown(ins: Sequence[Tensor], outs: Sequence[Tensor]) -> Work:
    """An operator nobody described: its bytes once, and a handful of vector instructions an element."""
    return elementwise("other", ins, outs, flat_is_cold=False, name=UNKNOWN)
