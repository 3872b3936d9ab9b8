"""Numpy arrays to and from the raw files of an emitted project."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from moec.diagnostics import Problem, Refusal
from moec.ir.symbol import evaluate, parse_dim
from moec.ir.types import dtype


def read_manifest(project: Path) -> dict[str, Any]:
    """manifest.json of an emitted project; Refusal where there is none."""
    path = project / "manifest.json"
    if not path.is_file():
        raise Refusal(
            f"{project} holds no manifest.json", todo="give the folder that 'moec compile' wrote (its ascendc)"
        )
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def sizes_of(
    manifest: Mapping[str, Any], arrays: Mapping[str, np.ndarray], known: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The symbols' values that the shapes of ``arrays`` imply, beside those that are known. Refusal where they
    contradict, or leave one open.
    """
    sizes: dict[str, int] = dict(known or {})
    problems: list[Problem] = []
    wanted = [e for e in (*manifest["inputs"], *manifest["weights"]) if e["name"] in arrays]
    for e in wanted:
        shape = arrays[e["name"]].shape
        if len(shape) != len(e["shape"]):
            problems.append(Problem(f"{e['name']} has shape {list(shape)}, [{', '.join(e['shape'])}] is wanted"))
            continue
        for text, n in zip(e["shape"], shape, strict=True):
            if text in manifest["symbols"] and sizes.setdefault(text, n) != n:
                problems.append(Problem(f"{e['name']}: {text} is {n} here and {sizes[text]} elsewhere"))
    problems += [Problem(f"no input tells the size {s}") for s in manifest["symbols"] if s not in sizes]
    for e in [] if problems else wanted:
        shape = tuple(evaluate(parse_dim(d), sizes) for d in e["shape"])
        if shape != arrays[e["name"]].shape:
            problems.append(Problem(f"{e['name']} has shape {list(arrays[e['name']].shape)}, {list(shape)} is wanted"))
    if problems:
        raise Refusal(problems)
    return sizes


def write_inputs(manifest: Mapping[str, Any], arrays: Mapping[str, np.ndarray], folder: Path) -> None:
    """Writes in.<name>.bin for every input and every weight without data; Refusal lists what is missing or of other
    dtype."""
    problems: list[Problem] = []
    needed = [*manifest["inputs"], *(w for w in manifest["weights"] if w["offset"] is None)]
    for e in needed:
        array, carrier = arrays.get(e["name"]), dtype(e["dtype"]).carrier
        if array is None:
            problems.append(Problem(f"input '{e['name']}' is missing"))
        elif array.dtype != carrier and not (array.dtype == np.bool_ and e["dtype"] == "u8"):
            problems.append(Problem(f"input '{e['name']}' is {array.dtype}, {e['dtype']} is wanted"))
        else:
            (folder / e["file"]).write_bytes(np.ascontiguousarray(array).tobytes())
    if problems:
        raise Refusal(problems)


def read_outputs(manifest: Mapping[str, Any], sizes: Mapping[str, int], folder: Path) -> dict[str, np.ndarray]:
    """The outputs a run left in ``folder``; it also left there the sizes that its data decided."""
    out = {}
    if manifest.get("bound"):
        lines = (folder / "out.sizes").read_text().split()
        sizes = {**sizes, **{name: int(n) for name, n in (line.split("=") for line in lines)}}
    for e in manifest["outputs"]:
        shape = tuple(evaluate(parse_dim(d), sizes) for d in e["shape"])
        raw = np.fromfile(folder / e["file"], dtype=np.uint8)
        whole = raw.view(dtype(e["dtype"]).carrier)
        out[e["name"]] = whole[: math.prod(shape)].reshape(shape) if e.get("room") else whole.reshape(shape)
    return out
