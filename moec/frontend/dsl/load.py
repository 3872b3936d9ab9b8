"""Reading ``.moe`` files: text to syntax tree to layer IR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moec.diagnostics import Problem, Refusal, Where
from moec.frontend.dsl import blocks as blocks  # blocks, calls and subscripts say how they are lowered
from moec.frontend.dsl import calls as calls
from moec.frontend.dsl import subscripts as subscripts
from moec.frontend.dsl import tree as t
from moec.frontend.dsl.parse import parse
from moec.frontend.dsl.report import Report, Span, place
from moec.frontend.dsl.scope import Program, Scope
from moec.frontend.dsl.statements import run_main, warn_unread
from moec.frontend.dsl.uncalled import check_uncalled
from moec.frontend.dsl.use import open_shared, take_functions, warn_unused
from moec.frontend.dsl.values import BUILTINS
from moec.ir.graph import Graph, Module
from moec.ir.symbol import Expr, symbols_of
from moec.ops.places import misplaced
from moec.ops.registry import OPS
from moec.sizes import symbol_bounds

MAX_BYTES = 1 << 20
"""Size of a file that is still read: far beyond what anyone writes by hand."""


@dataclass(frozen=True)
class Loaded:
    """A layer that was read: its module, the sizes to tune for (``dim T in [..] = 4096``), what looks like a mistake,
    and the sizes that the file names and derives from those left open (``S = 8 * T``).
    """

    module: Module
    tune: dict[str, int]
    warnings: tuple[Problem, ...]
    derived: dict[str, Expr]


def load_moe(path: Path | str) -> Module:
    """The layer IR of a ``.moe`` file; Refusal as ``read_moe``."""
    return read_moe(path).module


def parse_moe(text: str, file: str = "<text>") -> Module:
    """The layer IR of a text; Refusal as ``read_moe_text``."""
    return read_moe_text(text, file).module


def read_moe(path: Path | str) -> Loaded:
    """The layer of a ``.moe`` file; Refusal with every problem in it, or where it cannot be read."""
    return read_moe_text(read_text(path), str(path))


def read_text(path: Path | str) -> str:
    """The text of a file; Refusal where it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
            size = file.seek(0, 2)
        text = data.decode("utf-8") if size <= MAX_BYTES else ""
    except (OSError, ValueError) as error:
        raise Refusal(f"cannot read {path}: {error}", Where(str(path)), "give a readable .moe file in UTF-8") from None
    if size > MAX_BYTES:
        raise Refusal(
            f"{path} has {size >> 10} KiB", Where(str(path)), f"a .moe file has at most {MAX_BYTES >> 10} KiB"
        )
    return text


def read_moe_text(text: str, file: str = "<text>") -> Loaded:
    """The layer that ``text`` describes; Refusal with every problem in it, each with line, column and a suggestion."""
    report = Report(text.removeprefix("\ufeff"), file)
    statements = parse(report)
    program = Program(report)
    main = Scope(program, program.module.add(Graph("main")))
    if any(isinstance(s, t.Use) for s in statements):
        open_shared(program)
    _collect_functions(statements, main)
    program.reserved.update((s.name, None) for s in statements if isinstance(s, t.Dim | t.Group))
    run_main(statements, main)
    _check_places(program)
    uncalled = [fn for fn in main.unit.functions.values() if fn.key not in program.called and not fn.shared]
    unchecked = [fn for fn in uncalled if not check_uncalled(fn, main)]
    report.raise_if_wrong()
    warn_unread(main)
    warn_unused(statements, main)
    for fn in uncalled:
        so = ", so nothing in it was checked" if fn in unchecked else ""
        report.warn(fn.at, f"{fn.word} '{fn.name}' is never called{so}", "call it or leave it out")
    return Loaded(program.module, program.tune, tuple(sorted(report.warnings, key=place)), _derived(main))


def _derived(main: Scope) -> dict[str, Expr]:
    """The names that stand for sizes made of symbols whose size a user may give."""
    open_ = symbol_bounds(main.program.module)
    named = ((name, b.item) for name, b in main.names.items() if b.what == "constant" and isinstance(b.item, Expr))
    return {name: dim for name, dim in named if all(symbol in open_ for symbol in symbols_of(dim))}


def _check_places(program: Program) -> None:
    """Report what is used on the device and lies on the host, or the reverse."""
    if program.report.problems:
        return
    for _, node, what in misplaced(program.module):
        todo = (
            "write to_host(...)" if what.endswith("on the device") else "do this in host { }, or write to_device(...)"
        )
        line = node.origin.sources[0].line
        report = program.report
        if program.shared is not None and node.origin.sources[0].file == program.shared.unit.report.file:
            report = program.shared.unit.report
        text = report.lines[line - 1]
        start = len(text) - len(text.lstrip())
        report.wrong(Span(line, start + 1), what, "" if what.endswith("step") else todo)


def _collect_functions(statements: Sequence[t.Statement], main: Scope) -> None:
    """Take in the functions first, so that a call may stand before its function."""
    functions = main.unit.functions
    for statement in statements:
        if isinstance(statement, t.Use):
            take_functions(statement, main)
        if not isinstance(statement, t.Fn):
            continue
        name, at = statement.name, statement.at
        if name in OPS or name in BUILTINS or name == "main":
            main.wrong(
                at,
                f"'{name}' is {'what the file itself becomes' if name == 'main' else 'an op'}",
                "choose another name",
            )
        elif name in functions:
            old = functions[name]
            where = "taken from the shared layers" if old.shared else f"defined on line {old.at.line}"
            main.wrong(at, f"{old.word} '{name}' is already {where}", "choose another name")
        else:
            functions[name] = statement
        names = [d.text for d in statement.dims] + [p.name for p in statement.params]
        for twice in dict.fromkeys(n for n in names if names.count(n) > 1):
            main.wrong(
                at,
                f"{statement.word} '{name}' has two parameters or dimensions called '{twice}'",
                "choose another name",
            )
