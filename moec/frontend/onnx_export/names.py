"""Renaming in nodes that hold subgraphs: what a subgraph reads from outside must follow, its own names stay unique."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx

GRAPH, GRAPHS = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == GRAPH:
            yield attribute.g
        elif attribute.type == GRAPHS:
            yield from attribute.graphs


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Give what ``node`` reads and makes, in its subgraphs too, new names. Names are those of one scope: unique."""
    for field in (node.input, node.output):
        for i, name in enumerate(field):
            if name in names:
                field[i] = names[name]
    for graph in subgraphs(node):
        for inner in graph.node:
            rename(inner, names)
        for held in (*graph.input, *graph.output, *graph.initializer):
            held.name = names.get(held.name, held.name)


def inner_names(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node's subgraphs define."""
    for graph in subgraphs(node):
        yield from (v.name for v in graph.input)
        yield from (t.name for t in graph.initializer)
        for inner in graph.node:
            yield from filter(None, inner.output)
            yield from inner_names(inner)


def make_unique(node: onnx.NodeProto, fresh: Callable[[str], str], reads: Mapping[str, str]) -> None:
    """Rename what a node reads by ``reads`` and give what its subgraphs define names of their own.

    A subgraph may define a name that is also one outside, and two subgraphs may define the same one.
    """
    for i, name in enumerate(node.input):
        node.input[i] = reads.get(name, name)
    for graph in subgraphs(node):
        own = dict(reads)
        for info in (*graph.input, *graph.initializer):
            if info.name not in own or own[info.name] == reads.get(info.name):
                own[info.name] = fresh(info.name)
            info.name = own[info.name]
        for inner in graph.node:
            make_unique(inner, fresh, own)
            for i, name in enumerate(inner.output):
                if name:
                    own[name] = inner.output[i] = fresh(name)
        for info in graph.output:
            info.name = own.get(info.name, info.name)
