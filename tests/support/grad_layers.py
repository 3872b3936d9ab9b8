"""Layer IR texts and inputs of gradients of the experts' side and of routing."""

from __future__ import annotations

import numpy as np
from vector_layers import Case
from vector_run import numbers

Gated = tuple[str, str, float, float | None, float, str, int]
"""activation, glu, alpha, limit, up_offset, dtype and width."""


def activation_text(cases: list[Gated]) -> str:
    given, made, lines = [], [], []
    for i, (act, glu, alpha, limit, offset, dtype, width) in enumerate(cases):
        full = width if glu == "none" else 2 * width
        given += [f"%h{i}: {dtype}[S, {full}]", f"%g{i}: {dtype}[S, {width}]"]
        made.append(f"y{i}: {dtype}[S, {full}]")
        bound = "none" if limit is None else repr(limit)
        lines.append(
            f'  %{i} = swiglu_grad(%h{i}, %g{i}) {{activation = "{act}", glu = "{glu}", alpha = {alpha!r}, '
            f"limit = {bound}, up_offset = {offset!r}}} : {dtype}[S, {full}]"
        )
    head = f"symbol S in [0, 100000]\nfunc main({', '.join(given)}) -> ({', '.join(made)}) {{\n"
    returned = ", ".join(f"%{i}" for i in range(len(cases)))
    return head + "\n".join(lines) + f"\n  return {returned}\n}}\n"


def activation_inputs(rng: np.random.Generator, cases: list[Gated], rows: int) -> dict[str, np.ndarray]:
    arrays = {}
    for i, (_, glu, _, _, _, dtype, width) in enumerate(cases):
        arrays[f"h{i}"] = numbers(rng, (rows, width if glu == "none" else 2 * width), dtype, 3.0)
        arrays[f"g{i}"] = numbers(rng, (rows, width), dtype)
    return arrays


def unpermute_text(hidden: int, top_k: int, dtype: str, weights: str | None, rows: bool) -> str:
    slots, given = f"{top_k}*T", f"%g: {dtype}[T, {hidden}], %p: i32[T, {top_k}]"
    given += f", %r: {dtype}[{slots}, {hidden}]" if rows else ""
    given += f", %w: {weights}[T, {top_k}]" if weights else ""
    made = f"drows: {dtype}[{slots}, {hidden}]" + (f", dweights: {weights}[T, {top_k}]" if rows else "")
    call = f"%g, {'%r' if rows else 'none'}, %p, {'%w' if weights else 'none'}"
    kinds = f"{dtype}[{slots}, {hidden}], {weights or 'f32'}[T, {top_k if rows else 0}]"
    return (
        f"symbol T in [0, 100000]\nfunc main({given}) -> ({made}) {{\n  %a, %b = unpermute_grad({call}) : {kinds}\n"
        f"  return {'%a, %b' if rows else '%a'}\n}}\n"
    )


def unpermute_inputs(
    rng: np.random.Generator, tokens: int, hidden: int, top_k: int, dtype: str, weights: str | None, rows: bool
) -> dict[str, np.ndarray]:
    arrays = {"g": numbers(rng, (tokens, hidden), dtype)}
    arrays["p"] = rng.permutation(tokens * top_k).astype(np.int32).reshape(tokens, top_k)
    if rows:
        arrays["r"] = numbers(rng, (tokens * top_k, hidden), dtype)
    if weights:
        arrays["w"] = numbers(rng, (tokens, top_k), weights)
    return arrays


def routing_text(cases: list[Case]) -> str:
    flags = {True: "true", False: "false"}
    given, made, lines = [], [], []
    for i, c in enumerate(cases):
        e, k = c["experts"], c["top_k"]
        given += [f"%x{i}: {c['dtype']}[T, {e}], %e{i}: i32[T, {k}], %g{i}: {c['weights']}[T, {k}]"]
        made.append(f"y{i}: {c['dtype']}[T, {e}]")
        attrs = ", ".join(f'{n} = "{c[n]}"' for n in ("score", "score_order", "group_score", "group_mask"))
        attrs += ", ".join(["", *(f"{n} = {c[n]}" for n in ("top_k", "groups", "group_top_k"))])
        attrs += f", renormalize = {flags[bool(c['renormalize'])]}"
        attrs += "".join(f", {n} = {float(str(c[n]))!r}" for n in ("renormalize_eps", "scale"))
        attrs += f", score_dtype = !{c.get('scores', 'f32')}, weights_dtype = !{c['weights']}"
        lines.append(f"  %{i} = gating_grad(%x{i}, none, %e{i}, %g{i}) {{{attrs}}} : {c['dtype']}[T, {e}]")
    head = f"symbol T in [0, 100000]\nfunc main({', '.join(given)}) -> ({', '.join(made)}) {{\n"
    return head + "\n".join(lines) + f"\n  return {', '.join(f'%{i}' for i in range(len(cases)))}\n}}\n"


def routing_inputs(rng: np.random.Generator, cases: list[Case], tokens: int) -> dict[str, np.ndarray]:
    out = {}
    for i, c in enumerate(cases):
        e, k = int(str(c["experts"])), int(str(c["top_k"]))
        out[f"x{i}"] = numbers(rng, (tokens, e), str(c["dtype"]), 2.0)
        out[f"e{i}"] = np.array([rng.permutation(e)[:k] for _ in range(tokens)], np.int32).reshape(tokens, k)
        out[f"g{i}"] = numbers(rng, (tokens, k), str(c["weights"]))
    return out
