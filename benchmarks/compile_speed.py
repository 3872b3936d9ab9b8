"""Compile speed against the graph size: a real exported layer, stacked.

Copies of ``stress/template_layer_e64.onnx`` (in the folder that MOEC_CORPUS names, or given as argument) are put one
behind the other, each
with weights and names of its own. Timed in one process, the best of ``--repeat`` rounds each: import and the default
passes, and onnxruntime making a
session of the same file with its basic graph optimisations. Prints a line a size: the ratio and the milliseconds per
1,000 nodes.

    python benchmarks/compile_speed.py                           about 12,000 nodes
    python benchmarks/compile_speed.py --nodes 12000 50000 150000
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import numpy_helper

import moec
from moec.passes.base import PassManager, default_passes


def stack(template: onnx.ModelProto, nodes: int) -> onnx.ModelProto:
    """As many copies of ``template`` as give about ``nodes`` nodes; the first input of each is the output of the one
    before.
    """
    source = template.graph
    copies = max(1, round(nodes / len(source.node)))
    model = onnx.ModelProto()
    model.CopyFrom(template)
    del model.graph.node[:], model.graph.initializer[:], model.graph.value_info[:]
    inputs = [i.name for i in source.input]
    shared = set(inputs[1:])
    below = inputs[0]
    for k in range(copies):
        prefix = f"layer{k}/"
        renamed = {"": "", inputs[0]: below} | {name: name for name in shared}
        for tensor in source.initializer:
            copy = model.graph.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = renamed[tensor.name] = prefix + tensor.name
            if copy.data_type == onnx.TensorProto.FLOAT:
                array = numpy_helper.to_array(tensor) * (1 + k / copies)
                copy.raw_data = array.astype(array.dtype.newbyteorder("<")).tobytes()
                del copy.float_data[:]
        for node in source.node:
            copy = model.graph.node.add()
            copy.CopyFrom(node)
            copy.name = prefix + node.name
            del copy.input[:], copy.output[:]
            copy.input.extend(renamed.setdefault(name, prefix + name) for name in node.input)
            copy.output.extend(renamed.setdefault(name, prefix + name) for name in node.output)
        below = renamed[source.output[0].name]
    model.graph.output[0].name = below
    return model


def seconds(action: Callable[[], object], repeat: int) -> float:
    """The shortest of ``repeat`` runs."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


def measure(template: onnx.ModelProto, nodes: int, repeat: int) -> str:
    """One line of the table."""
    import onnxruntime

    model = stack(template, nodes)
    count = len(model.graph.node)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stacked.onnx"
        onnx.save(model, path)
        del model
        imported = seconds(lambda: moec.load(path), repeat)

        def import_and_passes() -> None:
            PassManager(default_passes()).run(moec.load(path))

        ours = seconds(import_and_passes, repeat)
        theirs = seconds(lambda: onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"]), repeat)
    per = 1e6 * ours / count
    return f"{count:8} {imported:9.2f} {ours:9.2f} {theirs:9.2f} {ours / theirs:7.2f} {per:14.1f}"


def main() -> int:
    """Parse arguments, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("template", nargs="?", type=Path, help="the layer to stack (default: from MOEC_CORPUS)")
    parser.add_argument("--nodes", type=int, nargs="+", default=[12000], help="sizes to measure")
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the best counts")
    arguments = parser.parse_args()
    template = arguments.template
    if template is None:
        folder = os.environ.get("MOEC_CORPUS")
        if not folder:
            print("give the template, or set MOEC_CORPUS", file=sys.stderr)
            return 2
        template = Path(folder) / "stress" / "template_layer_e64.onnx"
    model = onnx.load(template)
    print(f"{'nodes':>8} {'import s':>9} {'moec s':>9} {'ort s':>9} {'ratio':>7} {'ms/1000 nodes':>14}")
    for nodes in arguments.nodes:
        print(measure(model, nodes, arguments.repeat), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
