"""Machine files: what a chip has, every figure with its source and how sure it is.

A machine is a YAML file in ``machines/``; ``extends`` names the file it completes (``dav_c220`` holds what all chips of
the architecture share). A leaf is ``{value, source, confidence[, note]}``; sources are listed once under ``sources``.
``load("ascend910b1")`` gives a ``Machine``; ``machine["memory.hbm_rate"]`` is a number, ``machine.figures`` has the
rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from moec.diagnostics import Problem, Refusal, Where, suggest

FOLDER = Path(__file__).parent / "machines"
CONFIDENCE = ("measured", "platform file", "documented", "inferred")
BUFFERS = ("L1", "L0A", "L0B", "L0C", "BT", "FB", "UB")
PATHS = (
    "GM->UB", "UB->GM", "GM->L1", "GM->L1.nd2nz", "L1->GM", "L1->L0A", "L1->L0B", "GM->L0A", "GM->L0B",
    "L1->BT", "L1->FB", "L0C->GM", "L0C->L1", "UB->UB",
)  # fmt: skip
CUBE_DTYPES = ("int4", "int8", "f16", "bf16", "f32", "hf32")
QUEUED_PIPES = ("MTE1", "M", "MTE2", "MTE3", "V", "FIX")
LINKS = ("die", "node", "cluster")
HEADER = ("abstract", "extends", "title", "soc", "sources")
"""Top-level keys that hold no figures."""


def _schema() -> dict[str, str]:
    """Every key a machine must have, dotted, with its unit."""
    keys = {"clock_mhz": "MHz", "cores.aic": "cores", "cores.aiv": "cores"}
    memory = {
        "hbm_bytes": "B", "l2_bytes": "B", "hbm_peak": "B/s", "hbm_rate": "B/s", "hbm_mixed": "B/s",
        "l2_peak": "B/s", "l2_rate": "B/s",
        "hbm_per_core": "B/cycle", "line": "B", "request": "B", "same_line": "cycles",
        "write_buffer": "B", "past_row": "B",
    }  # fmt: skip
    keys |= {f"memory.{k}": unit for k, unit in memory.items()}
    keys |= {f"buffers.{b}.{k}": "B" for b in BUFFERS for k in ("bytes", "reserved", "align")}
    keys |= {"banks.groups": "groups", "banks.per_group": "banks", "banks.block": "B"}
    keys |= {"cube.m0": "elements", "cube.n0": "elements"}
    keys |= {f"cube.{k}": "cycles" for k in ("issue", "latency", "cold", "piece")}
    keys |= {"l1.shared": "cycles/cycle"}
    keys |= {f"cube.mac.{d}": "MAC/cycle" for d in CUBE_DTYPES}
    keys |= {"vector.repeat_bytes": "B", "vector.max_repeats": "repeats", "vector.drain": "cycles"}
    keys |= {"vector.conflict": "cycles/repeat", "vector.read_write": "cycles/repeat"}
    units = {
        "rate": "B/cycle",
        "start": "cycles",
        "issue": "cycles",
        "row": "cycles",
        "short_row": "B",
        "off_request": "cycles",
        "latency": "cycles",
    }
    keys |= {f"paths.{p}.{k}": unit for p in PATHS for k, unit in units.items()}
    keys |= {f"scalar.{k}": "cycles" for k in ("issue", "op", "load_gm", "load_local", "store")}
    keys |= {f"sync.{k}": "cycles" for k in ("flag", "handover", "barrier", "sync_all", "cross_core")}
    keys |= {f"queues.{p}": "entries" for p in QUEUED_PIPES}
    keys |= {f"launch.{c}_{k}": "us" for c in ("aic", "aiv") for k in ("base", "per_core")}
    keys |= {f"links.{k}.{f}": u for k in LINKS for f, u in (("rate", "B/s"), ("latency", "us"), ("size", "devices"))}
    return keys


SCHEMA: Mapping[str, str] = _schema()


@dataclass(frozen=True)
class Figure:
    """One number of a machine: its unit, where it was read, and how sure it is (one of ``CONFIDENCE``)."""

    value: float
    unit: str
    source: str
    confidence: str
    note: str = ""


@dataclass(frozen=True)
class Machine:
    """A chip as the cycle model sees it. Compares by name, so that it may key caches."""

    name: str
    title: str
    soc: str
    """The chip as the vendor's build tools name it."""
    figures: Mapping[str, Figure]
    sources: Mapping[str, str]

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Machine):
            return NotImplemented
        return self.name == other.name and self.figures == other.figures

    def __getitem__(self, key: str) -> float:
        """The number under a dotted key of ``SCHEMA``."""
        return self.figures[key].value

    @property
    def hz(self) -> float:
        """Core clock in cycles per second."""
        return self["clock_mhz"] * 1e6

    def cores(self, kind: str) -> int:
        """Cores of a kind: ``aic`` (cube) or ``aiv`` (vector)."""
        return int(self[f"cores.{kind}"])

    def usable(self, buffer: str) -> int:
        """Bytes of an on-chip buffer of one core that a kernel may plan (size less what is reserved)."""
        return int(self[f"buffers.{buffer}.bytes"] - self[f"buffers.{buffer}.reserved"])

    def us(self, cycles: int) -> float:
        """Microseconds of a number of core cycles."""
        return cycles / self["clock_mhz"]

    def peak_flops(self, dtype: str) -> float:
        """FLOP per second of all cube cores for operands of ``dtype`` (2 per MAC)."""
        return 2 * self[f"cube.mac.{dtype}"] * self.cores("aic") * self.hz


def machines() -> list[str]:
    """Names of the machines that can be a target, sorted."""
    return [path.stem for path in sorted(FOLDER.glob("*.yaml")) if not _parse(path).get("abstract")]


def _parse(path: Path) -> dict[str, Any]:
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = Where(str(path), mark.line + 1, mark.column + 1) if mark else Where(str(path))
        raise Refusal(
            "the machine file is not YAML", where, f"correct it: {getattr(error, 'problem', error)}"
        ) from None
    if not isinstance(data, dict):
        raise Refusal("the machine file is no mapping", Where(str(path)), "write keys and figures as in dav_c220.yaml")
    return data


def load(name: str) -> Machine:
    """The machine called ``name`` (see ``machines()``). Raises Refusal for an unknown name or an unsound file."""
    key = name.lower()
    if key not in machines():
        hint = suggest(key, machines())
        raise Refusal(f"unknown target '{name}'", todo=f"{hint + '; ' if hint else ''}targets: {', '.join(machines())}")
    return load_file(FOLDER / f"{key}.yaml")


@lru_cache(maxsize=64)
def load_file(path: Path) -> Machine:
    """Read and check one machine file; all its problems are reported at once."""
    problems: list[Problem] = []
    figures: dict[str, Figure] = {}
    sources: dict[str, str] = {}
    layers = _layers(path)
    for _, data in layers:
        sources |= {str(k): str(v) for k, v in (data.get("sources") or {}).items()}
    for file, data in layers:
        body = {k: v for k, v in data.items() if k not in HEADER}
        _collect(file, "", body, figures, sources, problems)
    reported = {p.where.node for p in problems}
    for key in SCHEMA:
        if key not in figures and key not in reported:
            problems.append(
                Problem("missing figure", Where(str(path), node=key), f"add it, in {SCHEMA[key]}, with its source")
            )
    texts = {key: str(layers[-1][1].get(key, "")) for key in ("title", "soc")}
    for key, text in texts.items():
        if not text:
            problems.append(Problem(f"missing {key}", Where(str(path), node=key), f"add '{key}: ...' at the top"))
    if problems:
        raise Refusal(problems)
    return Machine(path.stem, texts["title"], texts["soc"], figures, sources)


def _layers(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The file and all it extends, the most general first."""
    layers: list[tuple[Path, dict[str, Any]]] = []
    seen: list[Path] = []
    current: Path | None = path
    while current is not None:
        if current in seen:
            raise Refusal("machine files extend each other in a circle", Where(str(path), node="extends"), "break it")
        seen.append(current)
        if not current.is_file():
            raise Refusal(f"no such machine file: {current}", Where(str(path), node="extends"), "name a file beside it")
        data = _parse(current)
        layers.insert(0, (current, data))
        parent = data.get("extends")
        beside = current.parent / f"{parent}.yaml"
        current = None if parent is None else beside if beside.is_file() else FOLDER / f"{parent}.yaml"
    return layers


def _collect(
    file: Path,
    prefix: str,
    node: Mapping[Any, Any],
    out: dict[str, Figure],
    sources: Mapping[str, str],
    bad: list[Problem],
) -> None:
    for name, value in node.items():
        key = f"{prefix}{name}"
        where = Where(str(file), node=key)
        if isinstance(value, dict) and "value" not in value:
            if any(known.startswith(key + ".") for known in SCHEMA):
                _collect(file, key + ".", value, out, sources, bad)
            else:
                bad.append(Problem("unknown key", where, suggest(key, SCHEMA) or "see SCHEMA in machine.py"))
        elif key not in SCHEMA:
            bad.append(Problem("unknown key", where, suggest(key, SCHEMA) or "see SCHEMA in machine.py"))
        elif not isinstance(value, dict):
            bad.append(Problem("a figure without source", where, "write {value: ..., source: ..., confidence: ...}"))
        else:
            figure = _figure(key, value, where, sources, bad)
            if figure is not None:
                out[key] = figure


def _figure(
    key: str, leaf: Mapping[str, Any], where: Where, sources: Mapping[str, str], bad: list[Problem]
) -> Figure | None:
    before = len(bad)
    for name in leaf:
        if name not in ("value", "source", "confidence", "note"):
            bad.append(Problem(f"unknown part '{name}' of a figure", where, "parts: value, source, confidence, note"))
    value = leaf["value"]
    if isinstance(value, str):
        try:
            value = float(value)  # YAML 1.1 reads 1.8e12 without a sign in the exponent as text
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        bad.append(Problem(f"value {leaf['value']!r} is no number of at least 0", where, f"give it in {SCHEMA[key]}"))
    if leaf.get("source") not in sources:
        known = ", ".join(sorted(sources))
        bad.append(Problem(f"source {leaf.get('source')!r} is not listed", where, f"one of {known}, or add it"))
    if leaf.get("confidence") not in CONFIDENCE:
        bad.append(Problem(f"confidence {leaf.get('confidence')!r} unknown", where, f"one of {', '.join(CONFIDENCE)}"))
    if len(bad) > before or value is None:
        return None
    return Figure(value, SCHEMA[key], str(leaf["source"]), str(leaf["confidence"]), str(leaf.get("note", "")))
