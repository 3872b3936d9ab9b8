"""The review table: each AscendC call that moec emits beside what the vendor documents of it for Ascend 910B.

``data/api.csv`` holds the documented side (CANN asc-devkit docs, product Atlas A2; parameter order by the headers of
CANN 8.1 as well). Its columns:

form       the call with the documented parameter names; ``name=text`` where moec writes ``text`` for it
operands   a letter an operand, equal letters where dtypes must be equal
dtypes     what the letters may be together (``f16/u8``), and what then holds for a parameter (``:mode=RINT|NONE``,
           ``:scalar=0..16``)
limits     ``name<=number`` of moec's parameter names
alignment  ``operand:bytes`` or ``memory:bytes`` of the address

Rows without an instruction are calls outside the instruction table: flags, barriers, buffers, scalars.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from moec.codegen.instructions import INSTRUCTIONS, InstrSpec, Operand
from moec.codegen.kernel_ir import ALIGN
from moec.targets.ascend.cost.table import DATA

AS_DOCUMENTED = "as documented"
Options = Container[object]


@dataclass(frozen=True)
class Documented:
    """A row of ``api.csv``; ``allowed``: dtypes of all operands -> what they allow of parameters."""

    instruction: str
    form: str
    allowed: Mapping[tuple[str, ...], Mapping[str, Options]]
    limits: Mapping[str, int]
    alignment: Mapping[str, int]
    source: str
    note: str

    @property
    def function(self) -> str:
        """The function's name."""
        return re.split(r"[<(]", self.form)[0].split(".")[-1]

    @property
    def emitted(self) -> str:
        """The call as moec is to write it."""
        return re.sub(r"(\w+)=([\w:]+)", r"\2", self.form)

    @property
    def call(self) -> str:
        """The call with the documented names."""
        return re.sub(r"(\w+)=([\w:]+)", r"\1", self.form)


@dataclass(frozen=True)
class Review:
    """What moec emits of a documented call (dtypes; none of calls outside the table), and where that differs."""

    documented: Documented
    dtypes: tuple[tuple[str, ...], ...]
    differences: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return "; ".join(self.differences) or AS_DOCUMENTED


@lru_cache(maxsize=1)
def documented() -> tuple[Documented, ...]:
    """The rows of ``api.csv``."""
    with open(DATA / "api.csv", encoding="utf-8", newline="") as file:
        return tuple(
            Documented(
                row["instruction"],
                row["form"],
                dict(_allowed(row["operands"].split(), row["dtypes"].split())),
                {name: int(most) for name, most in (entry.split("<=") for entry in row["limits"].split())},
                {where: int(unit) for where, unit in (entry.split(":") for entry in row["alignment"].split())},
                row["source"],
                row["note"],
            )
            for row in csv.DictReader(file)
        )


def _allowed(letters: list[str], entries: list[str]) -> Iterator[tuple[tuple[str, ...], dict[str, Options]]]:
    distinct = list(dict.fromkeys(letters))
    for entry in entries:
        dtypes, _, condition = entry.partition(":")
        given = dict(zip(distinct, dtypes.split("/"), strict=True))
        name, _, options = condition.partition("=")
        yield tuple(given[letter] for letter in letters), {name: _options(options)} if name else {}


def _options(text: str) -> Options:
    """``a|b`` or ``low..high``."""
    if ".." in text:
        low, high = map(int, text.split(".."))
        return range(low, high + 1)
    return frozenset(text.split("|"))


def review(specs: Iterable[InstrSpec] | None = None) -> list[Review]:
    """Every documented row, compared with the instruction of that name among ``specs`` (all, where none are given)."""
    table = {s.name: s for s in (INSTRUCTIONS.values() if specs is None else specs)}
    return [
        Review(row, tuple(table[row.instruction].combinations()), tuple(_differences(row, table[row.instruction])))
        if row.instruction
        else Review(row, (), ())
        for row in documented()
        if not row.instruction or row.instruction in table
    ]


def _differences(row: Documented, spec: InstrSpec) -> Iterator[str]:
    call = _call_of(spec.spelled, row.function)
    if call != row.emitted:
        yield f"the call is written {call}, documented {row.emitted}"
    for dtypes in spec.combinations():
        if dtypes and dtypes not in row.allowed:
            yield f"{'/'.join(dtypes)} is not documented"
            continue
        for name, options in row.allowed.get(dtypes, {}).items():
            if beyond := _beyond(spec, dtypes, name, options):
                yield f"{'/'.join(dtypes)} with {name} {beyond} is not documented"
    for p in spec.params:
        if p.name in row.limits and p.top > row.limits[p.name]:
            yield f"{p.name} up to {p.top}, documented up to {row.limits[p.name]}"
    for o in spec.operands:
        for space in o.spaces:
            unit = row.alignment.get(o.name, row.alignment.get(space, 1))
            if _unit(o, space) % unit:
                yield f"{o.name} at multiples of {_unit(o, space)} bytes, documented {unit}"


def _call_of(text: str, function: str) -> str:
    """The call of ``function`` in ``text``, with the object it is a method of."""
    found = re.search(rf"(\w+\.)?\b{function}\b", text)
    if found is None:
        return text
    depth, end = 0, found.end()
    for end in range(found.end(), len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0 and text[end] == ")":
            break
    return text[found.start() : end + 1]


def _beyond(spec: InstrSpec, dtypes: tuple[str, ...], name: str, options: Options) -> str:
    """The values of a parameter that moec allows for ``dtypes`` and the documents do not, as text."""
    param = next(p for p in spec.params if p.name == name)
    allowed: object = spec.only.get(dtypes, {}).get(name)
    if allowed is None:
        allowed = (True, False) if param.kind == "bool" else param.options or ("any",)
    assert isinstance(allowed, Iterable)
    if isinstance(options, range):
        return ", ".join(str(v) for v in allowed if v not in options)
    return ", ".join(plain for plain in map(_plain, allowed) if plain not in options)


def _plain(value: object) -> str:
    """An option without its enumeration: RINT of ``RoundMode::CAST_RINT``, false of False."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).rsplit("::", 1)[-1].removeprefix("CAST_")


def _unit(operand: Operand, space: str) -> int:
    """Bytes that addresses of an operand are multiples of; 1 in device memory."""
    return 1 if space == "GM" else max(operand.align, ALIGN[space])


def dtypes_text(combinations: Iterable[tuple[str, ...]]) -> str:
    """Combinations for people: one dtype where all operands have it."""
    return " ".join(c[0] if len(set(c)) == 1 else "/".join(c) for c in combinations if c)


def documented_text(row: Documented) -> str:
    """The documented dtypes for people, with what they allow of parameters."""
    return "; ".join(
        " ".join([dtypes_text(combinations), *([condition] if condition else [])])
        for condition, combinations in _by_condition(row).items()
    )


def _by_condition(row: Documented) -> dict[str, list[tuple[str, ...]]]:
    out: dict[str, list[tuple[str, ...]]] = {}
    for dtypes, conditions in row.allowed.items():
        out.setdefault(", ".join(f"{n} {_spoken(options)}" for n, options in conditions.items()), []).append(dtypes)
    return out


def _spoken(options: Options) -> str:
    if isinstance(options, range):
        return f"{options[0]} to {options[-1]}"
    assert isinstance(options, Iterable)
    return " ".join(sorted(str(o) for o in options))


def called(source: str) -> set[str]:
    """The functions of AscendC's naming (an upper-case first letter) that the body of a kernel's source calls."""
    body = source.split("{", 1)[1]
    body = re.sub(r"//[^\n]*", "", body)
    return set(re.findall(r"\b([A-Z]\w*)(?:<[^;(){}<>]*>)?\(", body))


def functions() -> set[str]:
    """The functions of the table."""
    return {row.function for row in documented()}
