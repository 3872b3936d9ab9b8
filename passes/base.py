"""What a pass is, how passes are found by name, and the manager that runs and verifies them.

A pass is a frozen dataclass whose fields are its options: on the command line (``name{field=value}``) and in the
documentation. It edits the module in place and returns a ``Result``. A user registers one so::

    from moec.passes.base import Pass, Result, register_pass

    @register_pass
    class CountNodes(Pass):
        \"""Counts nodes.\"""
        name = "count-nodes"
        limit: int = 10

        def run(self, module, context):
            print(sum(1 for _ in module.nodes()), self.limit)
            return Result()

Packages offer passes through the entry point group ``moec.passes``: each entry names a module or a ``Pass`` class.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

from moec.diagnostics import CheckFailed, Diagnosis, Problem, Refusal, Usage, Where, suggest
from moec.ir.graph import Module
from moec.ops.verify import verify
from moec.passes.result import Gate, Result


@dataclass(frozen=True)
class Context:
    """What passes may ask of their surroundings.

    ``target``: the machine to decide for (``moec.target.Target``), or None. ``tune``: sizes to tune for, by symbol
    (``--set``). ``witness``: evaluates a module on witness inputs and returns its outputs by name, or None where nobody
    asked for checks; with it, each distinct rewrite is also evaluated on its own before it is committed. ``gate``: how
    many more rules may be applied.
    """

    target: Any = None
    tune: Mapping[str, int] = field(default_factory=dict)
    witness: Callable[[Module], Mapping[str, Any]] | None = None
    gate: Gate = field(default_factory=Gate)


@dataclass(frozen=True)
class Pass:
    """Base of all passes: set ``name``, write a docstring, declare options as fields, implement ``run``."""

    name: ClassVar[str] = ""

    def run(self, module: Module, context: Context) -> Result:
        """Edit ``module`` in place and say what was done."""
        raise NotImplementedError(f"pass {self.name} has no run method")

    @property
    def spec(self) -> str:
        """The text that ``parse_passes`` turns back into this pass; options at their defaults are left out."""
        changed = [f.name for f in dataclasses.fields(self) if not self._is_default(f)]
        given = [f"{name}={_print_option(getattr(self, name))}" for name in changed]
        return self.name + ("{" + ",".join(given) + "}" if given else "")

    def _is_default(self, f: dataclasses.Field[Any]) -> bool:
        return bool(getattr(self, f.name) == f.default)

    @classmethod
    def summary(cls) -> str:
        """The first paragraph of its docstring, on one line."""
        return " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())

    @classmethod
    def documentation(cls) -> str:
        """Its whole docstring and its options; passes that consist of rules add each rule."""
        options = [f"  {name}: {kind} = {default}" for name, kind, default in cls.options()]
        return "\n".join([inspect.cleandoc(cls.__doc__ or ""), *(["", "options", *options] if options else [])]) + "\n"

    @classmethod
    def options(cls) -> list[tuple[str, str, str]]:
        """Name, type and default of each option, as text."""
        return [(f.name, type(f.default).__name__, _print_option(f.default)) for f in dataclasses.fields(cls)]


PASSES: dict[str, type[Pass]] = {}
"""Registered passes by name. Use ``known_passes()``, which loads them first."""

P = TypeVar("P", bound=type[Pass])


@dataclass_transform(frozen_default=True)
def register_pass(cls: P) -> P:
    """Class decorator: make the pass a frozen dataclass and known by its name.

    TypeError where name, docstring or an option's default is missing or the name is taken by another class.
    """
    made = cast(P, dataclass(frozen=True)(cls))
    if not made.name or not (cls.__dict__.get("__doc__") or "").strip():
        raise TypeError(f"pass {cls.__qualname__} needs a name and a docstring")
    for f in dataclasses.fields(made):
        if f.default is dataclasses.MISSING or not isinstance(f.default, (bool, int, float, str)):
            raise TypeError(f"option '{f.name}' of pass {made.name} needs a bool, int, float or str default")
    taken = PASSES.get(made.name)
    if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"pass name '{made.name}' is taken by {taken.__module__}.{taken.__qualname__}")
    PASSES[made.name] = made
    return made


_loaded = False


def known_passes() -> dict[str, type[Pass]]:
    """All passes by name: moec's own, those of installed packages (entry points ``moec.passes``), and the user's."""
    global _loaded
    if not _loaded:
        package = importlib.import_module("moec.passes")
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
            importlib.import_module(f"moec.passes.{info.name}")
        for entry in sorted(entry_points(group="moec.passes"), key=lambda e: (e.name, e.value)):
            found = _entry(entry)
            if isinstance(found, type) and issubclass(found, Pass) and found.name not in PASSES:
                register_pass(found)
        _loaded = True
    return dict(sorted(PASSES.items()))


def _entry(entry: EntryPoint) -> object:
    """What an entry point names; Refusal says whose it is and where in that package the fault lies."""
    try:
        return entry.load()
    except Diagnosis:
        raise
    except Exception as fault:
        whose = f" of package {entry.dist.name}" if entry.dist is not None else ""
        own = entry.module.partition(".")[0]
        lines = [f for f in traceback.extract_tb(fault.__traceback__) if own in Path(f.filename).with_suffix("").parts]
        where = Where(lines[-1].filename, lines[-1].lineno or 0) if lines else Where()
        what = f"entry point '{entry.name} = {entry.value}'{whose} cannot be loaded: {type(fault).__name__}: {fault}"
        raise Refusal(what, where, "correct it, or uninstall that package") from fault


def parse_passes(text: str) -> list[Pass]:
    """The passes that ``a,b{option=value,...},c`` names; Usage lists every unknown name, option and bad value."""
    problems: list[Problem] = []
    passes: list[Pass] = []
    known = known_passes()
    for part in _split(text):
        name, brace, rest = part.partition("{")
        cls = known.get(name.strip())
        if cls is None:
            todo = suggest(name.strip(), known) or "`moec passes` lists them"
            problems.append(Problem(f"unknown pass '{name.strip()}'", todo=todo))
            continue
        if brace and not rest.endswith("}"):
            problems.append(Problem(f"'{part}' lacks its closing brace"))
            continue
        options = _parse_options(cls, rest[:-1], problems)
        passes.append(cls(**options))
    if problems:
        raise Usage(problems)
    return passes


def _split(text: str) -> list[str]:
    """Parts between the commas that stand outside braces."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text + ","):
        depth += (c == "{") - (c == "}")
        if c == "," and depth <= 0:
            if part := text[start:i].strip():
                parts.append(part)
            start = i + 1
    if depth > 0 and (rest := text[start:].strip()):
        parts.append(rest)
    return parts


def _parse_options(cls: type[Pass], text: str, problems: list[Problem]) -> dict[str, Any]:
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}
    options: dict[str, Any] = {}
    for item in filter(None, (s.strip() for s in text.split(","))):
        key, equals, value = (s.strip() for s in item.partition("="))
        if key not in defaults:
            todo = suggest(key, defaults) or f"its options: {', '.join(defaults) or 'none'}"
            problems.append(Problem(f"pass {cls.name} has no option '{key}'", todo=todo))
            continue
        kind = type(defaults[key])
        try:
            options[key] = _option(kind, value if equals else ("true" if kind is bool else ""))
        except ValueError:
            problems.append(Problem(f"option '{key}' of pass {cls.name} must be {kind.__name__}, not '{value}'"))
    return options


def _option(kind: type, text: str) -> Any:
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    return kind(text)


def _print_option(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


BeforePass = Callable[[int, Pass, Module], None]
AfterPass = Callable[[int, Pass, Module, Result], None]


@dataclass
class Step:
    """A pass that ran, and what it did."""

    made_by: Pass
    result: Result


@dataclass
class PassManager:
    """Runs ``passes`` in order on a module and verifies it before the first and after each.

    ``before`` and ``after`` are called around each pass with its number (from 1): printing the IR, checking, progress.
    A violation after a pass, an exception in it, or a diagnosis by an ``after`` hook becomes a CheckFailed that names
    the pass by number and spec; a pass's own Refusal passes through. The module is then as the failing pass left it.
    """

    passes: Sequence[Pass]
    before: Sequence[BeforePass] = ()
    after: Sequence[AfterPass] = ()

    @classmethod
    def parse(cls, text: str, before: Sequence[BeforePass] = (), after: Sequence[AfterPass] = ()) -> PassManager:
        """A manager of the passes that ``text`` names (see ``parse_passes``)."""
        return cls(parse_passes(text), before, after)

    def run(self, module: Module, context: Context | None = None) -> list[Step]:
        """Run all passes; what each did."""
        return list(self.steps(module, context))

    def steps(self, module: Module, context: Context | None = None) -> Iterator[Step]:
        """Run one pass a step."""
        context = context or Context()
        verify(module)
        for number, each in enumerate(self.passes, 1):
            yield Step(each, self._run_one(number, each, module, context))

    def _run_one(self, number: int, each: Pass, module: Module, context: Context) -> Result:
        blame = f"pass {number} ({each.spec})"
        try:
            for before in self.before:
                before(number, each, module)
            result = each.run(module, context)
        except CheckFailed as failure:
            raise _blamed(failure, blame) from failure
        except Diagnosis:
            raise
        except Exception as error:
            raise CheckFailed(f"{blame} failed with {type(error).__name__}: {error}") from error
        try:
            verify(module)
            for after in self.after:
                after(number, each, module, result)
        except Diagnosis as failure:
            raise _blamed(failure, f"after {blame}") from failure
        return result


def _blamed(failure: Diagnosis, blame: str) -> CheckFailed:
    return CheckFailed([Problem(f"{blame}: {p.what}", p.where, p.todo) for p in failure.problems])


DEFAULT_PIPELINE = (
    "canonicalise,fold,recover-rope,recover-attention,canonicalise,cse,dce,"
    "recover-moe,expand-moe,fuse-gating,packed-mask,"
    "rect-attention,rope-concat-elim,rotate-half-elim,permute-fusion,fuse-swiglu,fuse-rope,canonicalise,cse,dce,"
    "sync-removal,gather-rows,inline,fuse-residual,fuse-norm,fuse-vector,fold,dce,reorder-launch"
)
"""What ``moec compile`` runs.

Transposes go into products before ``fold`` would lay weights out for them; attention is recovered before the second
``canonicalise``, which tidies what it leaves, while folded constants let more rules match; recovery reads the one
canonical spelling; what it leaves of a router is gathered by ``fuse-gating``. The rewrites that save copies and kernels
read what recovery made, and graphs that came with their backward half; ``canonicalise`` tidies behind them. Products
gather rows once nothing else looks for their sort. Norms are gathered into kernels before ``fuse-vector`` takes the
rest. All up to there is done once for a layer that is repeated;
then its calls are taken apart, so that the last sum of a copy and the first norm of the next can be one kernel (equal
kernels are one function), and ``fold`` lays out the weights of each copy.
"""


TRAIN_PIPELINE = (
    "canonicalise,fold{weights=false},recover-rope,recover-attention,canonicalise,cse,dce,"
    "recover-moe,expand-moe,fuse-gating,packed-mask,"
    "rect-attention,rope-concat-elim,permute-fusion,fuse-rope,sync-removal,"
    "canonicalise,cse,dce,"
    "prob-placement,autodiff,prob-placement,canonicalise,cse,dce,sum-rows,rotate-half-elim,"
    "fuse-swiglu{weights=false},fuse-rope,canonicalise,cse,dce,"
    "inline,gather-rows,fuse-residual,fuse-norm,fuse-vector,fold{weights=false},dce,reorder-launch"
)
"""What ``moec compile --train`` runs.

Forward is brought into its best form first, so that backward is derived from that; a repeated layer is differentiated
once. Weights keep the layout that they came in, as gradients are given for them by name. ``prob-placement`` runs ahead
of autodiff for the outputs of experts, and behind it for the product that it made in their place. ``gather-rows``
waits until calls are taken apart, as rows that products of forward and backward read are theirs together.
"""


def default_passes() -> list[Pass]:
    """The passes of ``DEFAULT_PIPELINE`` with their default options."""
    return parse_passes(DEFAULT_PIPELINE)


def train_passes(options: str = "", memory: str = "", balance: str = "") -> list[Pass]:
    """The passes of ``TRAIN_PIPELINE``, autodiff with ``options`` as they stand within its braces, after balance-loss
    with those of ``balance`` where there are any. With passes that decide what stays in ``memory`` the layer is taken
    apart, and they run before kernels are formed.
    """
    first = f"balance-loss{{{balance}}}," if balance else ""
    text = TRAIN_PIPELINE.replace("autodiff", f"{first}autodiff{{{options}}}")
    if memory:
        text = text.replace("inline,", f"inline,canonicalise,cse,dce,{memory},")
    return parse_passes(text)
