"""The module of a model's decoder layers: one function a kind of layer, ``main`` calls them in order."""

from __future__ import annotations

import numpy as np

from moec.frontend.hf.attention import attention
from moec.frontend.hf.body import Body, dense, moe
from moec.frontend.hf.families import Names
from moec.frontend.hf.rope import Rope
from moec.frontend.hf.spec import Layer, Model, Moe
from moec.ir.data import ArrayData
from moec.ir.graph import Graph, Module, Origin, Source, Value
from moec.ir.symbol import sym
from moec.ir.types import F32, I64, TensorType
from moec.ops.build import Builder

BATCH = (1, 1024)
"""Bounds of the number of sequences: with the longest ones and 8 experts a token, rows still count in 31 bits."""


def build_module(model: Model, names: Names, file: str) -> Module:
    """``main``: hidden_states [batch, seq, H] through the layers that are built; positions count from 0."""
    module = Module()
    module.symbols |= {"batch": BATCH, "seq": (1, model.longest)}
    main = module.add(Graph("main"))
    x = main.add_input("hidden_states", TensorType(model.dtype, (sym("batch"), sym("seq"), model.hidden)))
    b = Builder(main)
    tables: dict[Rope, tuple[Value, Value]] = {}
    functions: dict[Layer, Body] = {}
    for number in model.built:
        layer = model.layers[number]
        rope = layer.attention.rope
        if rope not in tables:
            b.origin = Origin((Source(file, 1, "rotary_emb"),))
            tables[rope] = _tables(b, model, rope)
        if layer not in functions:
            functions[layer] = _function(module, model, layer, names, file)
        body = functions[layer]
        b.origin = Origin((Source(file, 1, f"layers.{number}"),))
        weights = [
            b.weight(name=f"model.layers.{number}.{name}", dtype=v.type.dtype, shape=v.type.dims)
            for name, v in body.weights.items()
        ]
        (x,) = b.call(module, body.graph.name, x, *tables[rope], *weights)
    main.set_outputs([x], ["output"])
    return module


def _tables(b: Builder, model: Model, rope: Rope) -> tuple[Value, Value]:
    """cos and sin [1, 1, seq, R/2] of the positions 0.. in the layer's dtype, computed in f32."""
    seq, half = sym("seq"), len(rope.frequencies)
    frequencies = b.constant(value=ArrayData(np.array(rope.frequencies, np.float32)))
    positions = b.cast(b.iota(size=seq, dtype=I64), to=F32)
    angles = b.mul(
        b.reshape(positions, shape=(1, 1, seq, 1)),
        b.reshape(frequencies, shape=(1, 1, 1, half)),
    )
    cos, sin = b.cos(angles), b.sin(angles)
    if rope.factor != 1.0:
        factor = b.constant(value=ArrayData(np.array(rope.factor, np.float32)))
        cos, sin = b.mul(cos, factor), b.mul(sin, factor)
    return (cos, sin) if model.dtype is F32 else (b.cast(cos, to=model.dtype), b.cast(sin, to=model.dtype))


def _function(module: Module, model: Model, layer: Layer, names: Names, file: str) -> Body:
    """The function of one kind of layer: (hidden_states, cos, sin, weights...) -> hidden_states."""
    kind = "moe_layer" if isinstance(layer.mlp, Moe) else "dense_layer"
    graph = module.add(Graph(kind if layer.attention.window is None else f"windowed_{kind}"))
    batch, seq, half = sym("batch"), sym("seq"), len(layer.attention.rope.frequencies)
    x = graph.add_input("hidden_states", TensorType(model.dtype, (batch, seq, model.hidden)))
    table = TensorType(model.dtype, (1, 1, seq, half))
    cos, sin = graph.add_input("cos", table), graph.add_input("sin", table)
    b = Body(graph, names, model.hidden, model.dtype, layer.eps, file)
    y = attention(b, layer.attention, b.norm(x, names.input_norm, layer.eps), cos, sin)
    if layer.sandwich:
        y = b.norm(y, names.post_norm, layer.eps)
    x = _joined(b, x, y, layer)
    y = b.norm(x, names.pre_mlp_norm if layer.sandwich else names.post_norm, layer.eps)
    y = moe(b, layer.mlp, y) if isinstance(layer.mlp, Moe) else dense(b, layer.mlp, y)
    if layer.sandwich:
        y = b.norm(y, names.post_mlp_norm, layer.eps)
    graph.set_outputs([_joined(b, x, y, layer)], ["output"])
    return b


def _joined(b: Body, x: Value, y: Value, layer: Layer) -> Value:
    """The residual stream with a block's output in it."""
    b.module("residual")
    if layer.residual != 1.0:
        factor = b.build.constant(value=ArrayData(np.array(layer.residual, b.dtype.carrier)))
        y = b.build.mul(y, factor)
    return b.build.add(x, y)
