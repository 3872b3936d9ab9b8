"""Layer IR texts and inputs that the tests of the vector kernels share."""

from __future__ import annotations

import numpy as np
from vector_run import numbers

Case = dict[str, object]

DEEPSEEK: Case = {
    "score": "sigmoid",
    "score_order": "before_topk",
    "groups": 8,
    "group_top_k": 4,
    "group_score": "sum2",
    "group_mask": "zero",
    "renormalize": True,
    "renormalize_eps": 1e-20,
    "scale": 2.5,
}
PLAIN: Case = {
    "score": "softmax",
    "score_order": "before_topk",
    "groups": 1,
    "group_top_k": 1,
    "group_score": "none",
    "group_mask": "none",
    "renormalize": True,
    "renormalize_eps": 0.0,
    "scale": 1.0,
}
GATINGS: dict[str, Case] = {
    "mixtral": dict(PLAIN, experts=8, top_k=2, dtype="f32", weights="f32"),
    "qwen3_bf16": dict(PLAIN, experts=128, top_k=8, dtype="bf16", weights="bf16"),
    "gpt_oss": dict(
        PLAIN, experts=32, top_k=4, dtype="f32", weights="f32", score_order="after_topk", renormalize=False
    ),
    "deepseek_v3": dict(DEEPSEEK, experts=256, top_k=8, dtype="f32", weights="f32", bias="f32"),
    "deepseek_v2": dict(
        PLAIN,
        experts=40,
        top_k=6,
        dtype="f32",
        weights="f32",
        groups=4,
        group_top_k=2,
        group_score="max",
        group_mask="zero",
        renormalize=False,
        scale=16.0,
    ),
    "odd_f16": dict(
        PLAIN, experts=7, top_k=3, dtype="f16", weights="f16", score="sigmoid", score_order="after_topk", bias="f16"
    ),
    "odd_groups": dict(
        DEEPSEEK,
        experts=30,
        top_k=5,
        dtype="bf16",
        weights="f32",
        groups=3,
        group_top_k=2,
        group_mask="minus_inf",
        bias="bf16",
    ),
    "wide": dict(PLAIN, experts=321, top_k=16, dtype="f32", weights="f32"),
    "rounded_scores": dict(
        PLAIN, experts=16, top_k=4, dtype="f32", weights="bf16", scores="bf16", score="sigmoid", renormalize=False
    ),
    "all_of_one": dict(PLAIN, experts=1, top_k=1, dtype="f32", weights="f32"),
}


FLAGS = {True: "true", False: "false"}


def node(i: int, c: Case) -> str:
    e, k = c["experts"], c["top_k"]
    attrs = ", ".join(f'{n} = "{c[n]}"' for n in ("score", "score_order", "group_score", "group_mask"))
    attrs += ", ".join(["", *(f"{n} = {c[n]}" for n in ("top_k", "groups", "group_top_k"))])
    attrs += f", renormalize = {FLAGS[bool(c['renormalize'])]}, renormalize_eps = {float(str(c['renormalize_eps']))!r}"
    attrs += f", scale = {float(str(c['scale']))!r}, score_dtype = !{c.get('scores', 'f32')}"
    attrs += f", weights_dtype = !{c['weights']}"
    bias = f"%b{i}" if "bias" in c else "none"
    return f"  %w{i}, %e{i}, %c{i} = gating(%x{i}, {bias}) {{{attrs}}} : {c['weights']}[T, {k}], i32[T, {k}], i32[{e}]"


def gating_text(cases: list[Case]) -> str:
    """One module with a gating node a case; all see the same number of tokens."""
    given, made, returned = [], [], []
    for i, c in enumerate(cases):
        e, k = c["experts"], c["top_k"]
        given += [f"%x{i}: {c['dtype']}[T, {e}]"] + ([f"%b{i}: {c['bias']}[{e}]"] if "bias" in c else [])
        made += [f"weights{i}: {c['weights']}[T, {k}]", f"experts{i}: i32[T, {k}]", f"counts{i}: i32[{e}]"]
        returned += [f"%w{i}", f"%e{i}", f"%c{i}"]
    nodes = "\n".join(node(i, c) for i, c in enumerate(cases))
    return (
        f"symbol T in [0, 100000]\nfunc main({', '.join(given)}) -> ({', '.join(made)}) {{\n{nodes}\n"
        f"  return {', '.join(returned)}\n}}\n"
    )


def gating_inputs(rng: np.random.Generator, cases: list[Case], tokens: int) -> dict[str, np.ndarray]:
    out = {}
    for i, c in enumerate(cases):
        out[f"x{i}"] = numbers(rng, (tokens, int(str(c["experts"]))), str(c["dtype"]), 2.0)
        if "bias" in c:
            out[f"b{i}"] = numbers(rng, (int(str(c["experts"])),), str(c["bias"]), 0.1)
    return out


def permute_text(hidden: int, top_k: int, experts: int, dtype: str) -> str:
    rows, index = f"{dtype}[{top_k}*T, {hidden}]", f"i32[T, {top_k}]"
    return (
        f"""
symbol T in [0, 100000]
func main(%x: {dtype}[T, {hidden}], %e: {index}, %c: i32[{experts}], %w: f32[T, {top_k}])
"""[:-1].replace("\n", "\n")
        + f""" -> (rows: {rows}, positions: {index}, y: {dtype}[T, {hidden}], z: {dtype}[T, {hidden}]) {{
  %r, %p = permute(%x, %e, %c) : {rows}, {index}
  %y = unpermute(%r, %p, %w) : {dtype}[T, {hidden}]
  %z = unpermute(%r, %p, none) : {dtype}[T, {hidden}]
  return %r, %p, %y, %z
}}
"""
    )


def routed(
    rng: np.random.Generator, tokens: int, hidden: int, top_k: int, experts: int, dtype: str, how: str = "any"
) -> dict[str, np.ndarray]:
    if how == "one":
        e = np.full((tokens, top_k), experts - 1)
    elif how == "distinct":
        e = np.argsort(rng.random((tokens, experts)), axis=1)[:, :top_k]
    else:
        e = rng.integers(0, max(1, experts // 2), (tokens, top_k))
    return {
        "x": numbers(rng, (tokens, hidden), dtype),
        "e": e.astype(np.int32),
        "c": np.bincount(e.ravel(), minlength=experts).astype(np.int32),
        "w": rng.random((tokens, top_k)).astype(np.float32),
    }


def fused(name: str, given: str, made: str, lines: list[str], returned: str) -> str:
    """A module whose main is one fused call of a body with the same inputs and outputs."""
    body = "\n".join("  " + line for line in lines)
    names = ", ".join(part.split(":")[0].strip() for part in given.split(", %"))
    names = ", ".join(n if n.startswith("%") else "%" + n for n in names.split(", "))
    types = ", ".join(part.split(": ", 1)[1] for part in made.split("; "))
    results = ", ".join(f"%r{i}" for i in range(len(made.split("; "))))
    outputs = made.replace("; ", ", ")
    columns = "symbol C in [1, 100000]\n" if "C]" in given else ""
    return f"""symbol T in [0, 100000]
{columns}func {name}({given}) -> ({outputs}) {{
{body}
  return {returned}
}}
func main({given}) -> ({outputs}) {{
  {results} = fused({names}) {{fn = "{name}"}} : {types}
  return {results}
}}
"""


NORMS = [
    "%m = reduce_mean(%x) {axes = [1], keepdims = true} : f32[T, 1]",
    "%c = sub(%x, %m) : f32[T, C]",
    "%q = mul(%c, %c) : f32[T, C]",
    "%v = reduce_mean(%q) {axes = [1], keepdims = true} : f32[T, 1]",
    "%k = constant() {value = dense<f32[]: [0.001]>} : f32[]",
    "%e = add(%v, %k) : f32[T, 1]",
    "%s = rsqrt(%e) : f32[T, 1]",
    "%n = mul(%c, %s) : f32[T, C]",
    "%g = mul(%n, %w) : f32[T, C]",
    "%t = reduce_max(%x) {axes = [1], keepdims = true} : f32[T, 1]",
    "%d = add(%t, %b) : f32[T, 1]",
]
