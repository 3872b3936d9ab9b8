"""Attention and its gradient as programs of their own: texts, arrays, fp64 references, comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from ascend_run import Project

from moec.codegen.capacities import Capacities
from moec.codegen.lower import lower_module
from moec.codegen.program import Program
from moec.ir.text import parse_module
from moec.ops.attention import attend
from moec.ops.attention_grad import AttentionGrad, AttentionMaskGrad

CAPS = Capacities(aic=2, aiv=4)
SEQUENCES = 4
"""Packed in one batch, some of them empty as it comes."""
SMALL = {"S": 32, "T": 64}
"""Typical sizes that make tiles of 32 queries by 64 keys."""
ORDERS = ("forward", "reverse", "random:3")
CARRIER = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "bool": np.bool_}
STATS = ("softmax_max", "softmax_sum")
RESULTS = ("dq", "dk", "dv", "dsinks", "dq_rope", "dk_rope")

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Net:
    """One attention: ``heads`` query heads, ``kv`` key heads, ``width`` and ``values`` columns; ``mask`` is (dtype,
    dimensions), ``rope`` (columns, heads of the keys' part)."""

    dtype: str
    heads: int
    kv: int
    width: int
    values: int
    causal: bool = False
    window: int | None = None
    softcap: float | None = None
    mask: tuple[str, str] | None = None
    sinks: str = ""
    rope: tuple[int, int] | None = None
    empty: str = "zero"
    stats: bool = False
    packed: bool = False

    @property
    def keys(self) -> str:
        return "S" if self.packed else "T"

    @property
    def attrs(self) -> dict[str, object]:
        return {
            "scale": float(self.width) ** -0.5,
            "causal": self.causal,
            "window": self.window,
            "softcap": self.softcap,
            "empty_rows": self.empty,
        }

    def optional(self) -> dict[str, str]:
        """Types of the optional operands that are there."""
        out = {}
        if self.mask:
            out["mask"] = f"{self.mask[0]}[{self.mask[1]}]"
        if self.sinks:
            out["sinks"] = f"{self.sinks}[{self.heads}]"
        if self.rope:
            columns, heads = self.rope
            out["q_rope"] = f"{self.dtype}[B, {self.heads}, S, {columns}]"
            out["k_rope"] = f"{self.dtype}[B, {heads}, {self.keys}, {columns}]"
        if self.packed:
            out["cu_seqlens"] = "i32[C]"
        return out

    def types(self) -> dict[str, str]:
        d = self.dtype
        return {
            "q": f"{d}[B, {self.heads}, S, {self.width}]",
            "k": f"{d}[B, {self.kv}, {self.keys}, {self.width}]",
            "v": f"{d}[B, {self.kv}, {self.keys}, {self.values}]",
            "y": f"{d}[B, {self.heads}, S, {self.values}]",
            "softmax_max": f"f32[B, {self.heads}, S]",
            "softmax_sum": f"f32[B, {self.heads}, S]",
        }


def program(nets: Mapping[str, Net], grad: bool, caps: Capacities = CAPS, by_mask: bool = False) -> Program:
    """One program of all ``nets``; inputs and outputs are called ``<net>_<operand>``.

    ``grad``: of the gradients, ``by_mask`` of those by the masks, ``<net>_dmask``, alone.
    """
    inputs: list[str] = []
    lines: list[str] = []
    outputs: list[tuple[str, str]] = []
    for name, net in nets.items():
        types, extra = net.types(), net.optional()
        given = ["q", "k", "v", *(["y", *STATS, "dy"] if grad else [])]
        inputs += [f"%{name}_{n}: {(types | {'dy': types['y']})[n]}" for n in given]
        slots = ("mask", *([] if by_mask else ["sinks"]), "q_rope", "k_rope", "cu_seqlens")
        extra = {n: kind for n, kind in extra.items() if n in slots}
        inputs += [f"%{name}_{n}: {t}" for n, t in extra.items()]
        last = max((i for i, n in enumerate(slots) if n in extra), default=-1)
        operands = given + [n if n in extra else "none" for n in slots[: last + 1]]
        text = ", ".join("none" if n == "none" else f"%{name}_{n}" for n in operands)
        op, results = _op(net, grad, by_mask)
        attrs = ", ".join(
            f"{k} = {'none' if v is None else str(v).lower() if isinstance(v, bool) else repr(v)}"
            for k, v in net.attrs.items()
        ).replace("'", '"')
        names = ", ".join(f"%{name}_{r}{'_out' if grad else ''}" for r in results)
        lines.append(f"  {names} = {op}({text}) {{{attrs}, offset = {net.keys} - S}} : {', '.join(results.values())}")
        kept = [r for r in results if not grad or by_mask or r in grad_names(net)]
        outputs += [(f"{name}_{r}: {results[r]}", f"%{name}_{r}{'_out' if grad else ''}") for r in kept]
    symbols = "".join(f"symbol {s} in [0, 4096]\n" for s in "BST")
    symbols += "symbol C in [2, 64]\n" if any(net.packed for net in nets.values()) else ""
    text = f"{symbols}\nfunc main({', '.join(inputs)}) -> ({', '.join(n for n, _ in outputs)}) {{\n"
    text += "\n".join(lines) + f"\n  return {', '.join(v for _, v in outputs)}\n}}\n"
    return lower_module(parse_module(text), caps, SMALL | {"B": 1})


def _op(net: Net, grad: bool, by_mask: bool) -> tuple[str, dict[str, str]]:
    """The op and the types of its results."""
    types = net.types()
    if by_mask:
        return "attention_mask_grad", {"dmask": net.optional()["mask"]}
    if grad:
        return "attention_grad", _results(net)
    names = ("y", *STATS) if net.stats else ("y",)
    return ("attention_stats" if net.stats else "attention"), {n: types[n] for n in names}


def _results(net: Net) -> dict[str, str]:
    types, extra = net.types(), net.optional()
    return {
        "dq": types["q"],
        "dk": types["k"],
        "dv": types["v"],
        "dsinks": extra.get("sinks", "f32[0]"),
        "dq_rope": extra.get("q_rope", f"{net.dtype}[B, {net.heads}, S, 0]"),
        "dk_rope": extra.get("k_rope", f"{net.dtype}[B, {net.kv}, {net.keys}, 0]"),
    }


def grad_names(net: Net) -> list[str]:
    """Results of the gradient that are not empty."""
    return ["dq", "dk", "dv", *(["dsinks"] if net.sinks else []), *(["dq_rope", "dk_rope"] if net.rope else [])]


def arrays_of(net: Net, batch: int, queries: int, keys: int, rng: np.random.Generator) -> Arrays:
    sizes = {"B": batch, "S": queries, "T": keys, "C": SEQUENCES + 1}

    def normal(dims: Sequence[int], dtype: str) -> np.ndarray:
        return rng.standard_normal(dims).astype(np.float32).astype(CARRIER[dtype])

    out = {}
    for name, kind in {**{n: net.types()[n] for n in "qkv"}, **net.optional()}.items():
        dtype, _, rest = kind.partition("[")
        dims = [sizes[d] if d in sizes else int(d) for d in rest.rstrip("]").split(", ")]
        if name == "cu_seqlens":
            between = rng.integers(0, queries + 1, SEQUENCES - 1)
            out[name] = np.array([0, *np.sort(between), queries], np.int32)
        elif dtype == "bool":
            out[name] = rng.random(dims) < 0.7
        elif name == "mask":
            out[name] = np.where(rng.random(dims) < 0.2, -np.inf, rng.standard_normal(dims)).astype(CARRIER[dtype])
            if len(dims) > 1 and dims[-2] > 1:  # a row of padding, as exporters write it
                out[name][..., -1, :] = ml_dtypes.finfo(CARRIER[dtype]).min
        else:
            out[name] = normal(dims, dtype)
    return out


def forward(net: Net, a: Arrays, wide: type = np.float64) -> Arrays:
    """y and the softmax's maximum and sum in ``wide``."""
    x = {n: v if v.dtype == np.bool_ else v.astype(wide) for n, v in a.items()}
    names = ("q", "k", "v", "mask", "sinks", "q_rope", "k_rope", "cu_seqlens")
    made = attend(*(x.get(n) for n in names), offset=a["k"].shape[2] - a["q"].shape[2], **net.attrs)  # type: ignore[arg-type]
    return dict(zip(("y", *STATS), made, strict=True))


def with_gradient(net: Net, a: Arrays, rng: np.random.Generator) -> Arrays:
    """The inputs of the gradient: forward's, its rounded results, and a drawn dy."""
    made = forward(net, a)
    y = made["y"].astype(CARRIER[net.dtype])
    dy = rng.standard_normal(y.shape).astype(np.float32).astype(CARRIER[net.dtype])
    return a | {"y": y, "dy": dy} | {n: made[n].astype(np.float32) for n in STATS}


def gradient(net: Net, a: Arrays, wide: type = np.float64) -> Arrays:
    x = {n: v if v.dtype == np.bool_ else v.astype(wide) for n, v in a.items()}
    names = ("q", "k", "v", "y", *STATS, "dy", "mask", "sinks", "q_rope", "k_rope", "cu_seqlens")
    offset = a["k"].shape[2] - a["q"].shape[2]
    found = AttentionGrad.ref(*(x.get(n) for n in names), offset=offset, **net.attrs)  # type: ignore[arg-type]
    return {n: g for n, g in zip(RESULTS, found, strict=True) if n in grad_names(net)}


def mask_gradient(net: Net, a: Arrays, wide: type = np.float64) -> np.ndarray:
    x = {n: v.astype(wide) for n, v in a.items()}
    names = ("q", "k", "v", "y", *STATS, "dy", "mask", "q_rope", "k_rope", "cu_seqlens")
    offset = a["k"].shape[2] - a["q"].shape[2]
    return AttentionMaskGrad.ref(*(x.get(n) for n in names), offset=offset, **net.attrs)  # type: ignore[arg-type]


def run_alike(project: Project, arrays: Arrays, sizes: Mapping[str, int]) -> Arrays:
    """The outputs under strict barriers, which every order of cores must give bit for bit."""
    runs = [project.outputs(arrays, sizes, MOEC_CPU_STRICT="1", MOEC_CPU_ORDER=order) for order in ORDERS]
    for other in runs[1:]:
        for name, value in runs[0].items():
            assert value.tobytes() == other[name].tobytes(), name
    return runs[0]


class Errors:
    """Errors against fp64 by result, over several sizes, relative to the largest number (at least 1: inputs are of that
    size). They may be four times those of f32 arithmetic rounded to the result's dtype; a single size is too few
    numbers to tell what that arithmetic's errors are."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self.allowed: dict[str, float] = {}

    def add(self, name: str, got: np.ndarray, want: np.ndarray, plain: np.ndarray, dtype: str) -> None:
        where = np.isfinite(want)
        np.testing.assert_array_equal(np.isfinite(got.astype(np.float64)), where, name)
        real = want[where]
        if real.size == 0:
            return
        scale = max(1.0, np.max(np.abs(real)))
        error = np.max(np.abs(got.astype(np.float64)[where] - real)) / scale
        rounded = np.max(np.abs(plain.astype(CARRIER[dtype]).astype(np.float64)[where] - real)) / scale
        self.found[name] = max(self.found.get(name, 0.0), error)
        self.allowed[name] = max(self.allowed.get(name, 0.0), 4 * rounded)

    def check(self) -> None:
        assert self.found
        for name, error in self.found.items():
            assert error <= self.allowed[name], f"{name}: {error:.2e}, at most {self.allowed[name]:.2e}"
