"""Attention blocks as layer IR: multi-head and grouped-query attention, and MLA."""

from __future__ import annotations

from moec.frontend.hf.body import Body
from moec.frontend.hf.spec import Attention, Latent
from moec.ir.graph import Value


def attention(b: Body, spec: Attention, x: Value, cos: Value, sin: Value) -> Value:
    """Self-attention of x [B, S, H] as the model's module computes it, output projection included."""
    if spec.latent is None:
        q, k, v = _grouped(b, spec, x, cos, sin)
    else:
        q, k, v = _latent(b, spec, spec.latent, x, cos, sin)
    b.module(b.names.attention)
    sinks = b.weight(f"{b.names.attention}.sinks", spec.heads) if spec.sinks else None
    mixed = b.build.attention(
        q,
        k,
        v,
        None,
        sinks,
        scale=spec.scale,
        causal=True,
        offset=0,
        window=spec.window,
        softcap=None,
        empty_rows="zero",
    )
    batch, seq, _ = x.type.dims
    rows = b.build.reshape(b.build.transpose(mixed, perm=(0, 2, 1, 3)), shape=(batch, seq, spec.heads * spec.value))
    return b.linear(rows, f"{b.names.attention}.{b.names.output}", b.hidden, spec.output_bias)


def _grouped(b: Body, spec: Attention, x: Value, cos: Value, sin: Value) -> tuple[Value, Value, Value]:
    """Queries, keys and values of MHA and GQA, each [B, heads, S, head]."""
    at = b.names.attention
    q = b.linear(x, f"{at}.q_proj", spec.heads * spec.head, spec.bias)
    k = b.linear(x, f"{at}.k_proj", spec.kv_heads * spec.head, spec.bias)
    v = b.linear(x, f"{at}.v_proj", spec.kv_heads * spec.head, spec.bias)
    q_norm, k_norm = f"{at}.{b.names.q_norm}", f"{at}.{b.names.k_norm}"
    if spec.qk_norm == "width":
        q, k = b.norm(q, q_norm, b.eps), b.norm(k, k_norm, b.eps)
    q, k, v = (_split(b, t, n, spec.head) for t, n in ((q, spec.heads), (k, spec.kv_heads), (v, spec.kv_heads)))
    if spec.qk_norm == "head":
        q, k = b.norm(q, q_norm, b.eps), b.norm(k, k_norm, b.eps)
    return _rotated(b, spec, q, cos, sin), _rotated(b, spec, k, cos, sin), v


def _split(b: Body, x: Value, heads: int, width: int) -> Value:
    """[B, S, heads * width] as [B, heads, S, width]."""
    batch, seq, _ = x.type.dims
    b.module(b.names.attention)
    return b.build.transpose(b.build.reshape(x, shape=(batch, seq, heads, width)), perm=(0, 2, 1, 3))


def _rotated(b: Body, spec: Attention, x: Value, cos: Value, sin: Value) -> Value:
    b.module(b.names.attention)
    return b.build.rope(x, cos, sin, rotary_dim=spec.rope.width, layout=spec.rope.layout)


def _latent(b: Body, spec: Attention, latent: Latent, x: Value, cos: Value, sin: Value) -> tuple[Value, Value, Value]:
    """Queries, keys [B, heads, S, nope + rope] and values [B, heads, S, value] of MLA: keys and values come from a
    latent, the rotated part of the keys is one head that all share (arXiv 2405.04434, section 2.1).
    """
    at, nope, rank = b.names.attention, latent.nope, latent.kv_rank
    batch, seq, _ = x.type.dims
    rotary = spec.head - nope
    if latent.q_rank is None:
        q = b.linear(x, f"{at}.q_proj", spec.heads * spec.head)
    else:
        low = b.linear(x, f"{at}.q_a_proj", latent.q_rank, spec.bias)
        q = b.linear(b.norm(low, f"{at}.q_a_layernorm", latent.eps), f"{at}.q_b_proj", spec.heads * spec.head)
    q = _split(b, q, spec.heads, spec.head)
    q_nope, q_rope = b.cut(q, 0, nope), b.cut(q, nope, spec.head)
    both = b.linear(x, f"{at}.kv_a_proj_with_mqa", rank + rotary, spec.bias)
    low = b.norm(b.cut(both, 0, rank), f"{at}.kv_a_layernorm", latent.eps)
    kv = _split(b, b.linear(low, f"{at}.kv_b_proj", spec.heads * (nope + spec.value)), spec.heads, nope + spec.value)
    k_rope = _rotated(b, spec, _split(b, b.cut(both, rank, rank + rotary), 1, rotary), cos, sin)
    k_rope = b.build.expand(k_rope, shape=(batch, spec.heads, seq, rotary))
    q = b.build.concat(q_nope, _rotated(b, spec, q_rope, cos, sin), axis=3)
    k = b.build.concat(b.cut(kv, 0, nope), k_rope, axis=3)
    return q, k, b.cut(kv, nope, nope + spec.value)
