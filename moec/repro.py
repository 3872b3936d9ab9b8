"""A failure in one file: the layer before what fails, the passes that fail, and the inputs on which it shows.

The file is a zip archive with ``module.mir``, its side file, ``module.npz`` with the inputs and the weights that have
no numbers of their own, and ``repro.json``. It needs nothing else and runs nothing: replaying it parses, runs moec's
own passes and compares.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import moec
from moec import store
from moec.arrays import Arrays, Case
from moec.diagnostics import CheckFailed, Refusal, Where
from moec.inputs import open_weights
from moec.ir.data import TensorData
from moec.ir.graph import Module, Origin
from moec.ir.text import load_module, parse_module, print_module
from moec.passes.base import Context, Gate, Pass, PassManager, Result, parse_passes
from moec.witness import LARGEST_BYTES, Witness

SUFFIX = ".repro"
_MEMBERS = ("module.mir", store.NUMBERS, "module.npz", "repro.json")
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Snapshot:
    """A module as text with the tensors that the text names: what a run can start from again and again.

    ``origins``: where its nodes came from, in order; without them they come from lines of the text.
    """

    text: str
    tensors: dict[str, TensorData]
    origins: tuple[Origin, ...] = ()

    @classmethod
    def of(cls, module: Module) -> Snapshot:
        """The module as it is now."""
        text = print_module(module, origins=True)
        return cls(text, store.tensors_of([module]), tuple(n.origin for n in module.nodes()))

    def module(self) -> Module:
        """A fresh copy of it."""
        made = parse_module(self.text, store=self.tensors)
        if self.origins:
            for node, origin in zip(made.nodes(), self.origins, strict=True):
                node.origin = origin
        return made


@dataclass(frozen=True)
class Failure:
    """What fails: ``passes`` run on ``before``, as far as ``limit`` applications of rules where that is not None, on
    the inputs of ``cases`` and with ``weights`` where ``before`` has no numbers of its own. ``reason`` is what was said
    of it.
    """

    before: Snapshot
    passes: str
    limit: int | None
    cases: tuple[Case, ...]
    weights: Arrays
    reason: str


def attempt(module: Module, passes: Sequence[Pass], context: Context, witness: Witness) -> tuple[list[Result], str]:
    """Run ``passes`` on ``module`` and check the outcome on ``witness``; what the passes did, and what is wrong with it
    (the empty string where nothing is).
    """
    results: list[Result] = []
    try:
        for step in PassManager(passes).steps(module, context):
            results.append(step.result)
        witness.check(module, ",".join(p.spec for p in passes))
    except CheckFailed as failure:
        return results, "; ".join(p.what for p in failure.problems)
    return results, ""


def write(failure: Failure, path: Path) -> None:
    """Write ``failure`` to one file: the same bytes for the same failure. Refusal where it cannot be written."""
    about = {"moec": moec.__version__, "passes": failure.passes, "limit": failure.limit, "reason": failure.reason}
    arrays: dict[str, np.ndarray] = {}
    wanted = set(open_weights(failure.before.module()))
    weights = {n: a for n, a in failure.weights.items() if n in wanted or n.partition(".")[2] in wanted}
    for i, case in enumerate(failure.cases):
        number = str(i + 1) if i else ""
        arrays |= {f"in{number}.{name}": a for name, a in (*weights.items(), *case.inputs.items())}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "module.mir").write_text(failure.before.text, encoding="utf-8")
        (folder / "repro.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        store.save(failure.before.tensors, folder, folder, whole=True)
        np.savez(folder / "module.npz", **arrays)  # type: ignore[arg-type]
        work = path.with_name(f".{path.name}.part")
        try:
            with zipfile.ZipFile(work, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in _MEMBERS:
                    if (folder / name).is_file():
                        entry = zipfile.ZipInfo(name, _TIME)
                        entry.compress_type = zipfile.ZIP_DEFLATED
                        archive.writestr(entry, (folder / name).read_bytes())
            work.replace(path)
        except OSError as error:
            work.unlink(missing_ok=True)
            why = f"cannot write the reproducer: {error.strerror}"
            raise Refusal(why, Where(str(path)), "give a writable path") from None


def replay(path: Path, context: Context | None = None) -> None:
    """Run the failure in ``path`` again; returns where it is gone. CheckFailed while it is there, Refusal for a file
    that is no reproducer.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        about = _unpack(path, folder)
        before = Snapshot.of(load_module(folder / "module.mir", store.load(folder)))
        witness = Witness.of(before.module(), folder / "module.mir")
        context = replace(context or Context(), witness=None, gate=Gate(about.limit))
        _, wrong = attempt(before.module(), parse_passes(about.passes), context, witness)
    if wrong:
        limit = "" if about.limit is None else f", the first {about.limit} applications"
        raise CheckFailed(f"the failure is still there: {wrong}", Where(str(path)), f"passes: {about.passes}{limit}")


@dataclass(frozen=True)
class _About:
    passes: str
    limit: int | None


def _unpack(path: Path, folder: Path) -> _About:
    todo = "give a file that `moec bisect --write` or a failed --check wrote"
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {e.filename: e for e in archive.infolist()}
            if unknown := [n for n in entries if n not in _MEMBERS]:
                raise Refusal(f"no reproducer: it holds '{unknown[0]}'", Where(str(path)), todo)
            if sum(e.file_size for e in entries.values()) > 2 * LARGEST_BYTES:
                raise Refusal("the reproducer unpacks to more than moec evaluates", Where(str(path)), todo)
            for name, entry in entries.items():
                (folder / name).write_bytes(archive.read(entry))
        about = json.loads((folder / "repro.json").read_text(encoding="utf-8"))
        if not isinstance(about["passes"], str) or not isinstance(about["limit"], int | None):
            raise ValueError("repro.json lacks passes or limit")
        return _About(about["passes"], about["limit"])
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, NotImplementedError) as error:
        raise Refusal(f"no reproducer: {error}", Where(str(path)), todo) from None
