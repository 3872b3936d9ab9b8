"""Reading a ``config.json``: its fields by their names here, checked for kind, completed by what the family says.

Everything wrong is collected, so that one refusal tells it all.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from moec.diagnostics import Problem, Refusal, Where, suggest
from moec.frontend.hf.families import ARCHITECTURES, FAMILIES, Family
from moec.frontend.hf.fields import FIELDS, IGNORED, SPELLINGS, UNSAID, WARNED

MAX_BYTES = 1 << 20
"""Size of a file that is still read; published ones have a few KiB."""

LARGEST = 1 << 31
"""Bound of every whole number in a file: what a size may be."""

_WHICH = "give the config.json that lies beside a model's weights"


def _whole(low: int) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v < LARGEST


def is_number(v: Any) -> bool:
    """Whether a JSON value is a number that a float holds."""
    return isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= sys.float_info.max


def _list(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, list | tuple) and all(of(e) for e in v)


def _text(v: Any) -> bool:
    return isinstance(v, str)


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "size": ("a positive whole number", _whole(1)),
    "count": ("a whole number from 0", _whole(0)),
    "int": ("a whole number", _whole(-LARGEST)),
    "float": ("a number", is_number),
    "positive": ("a number above 0", lambda v: is_number(v) and v > 0),
    "eps": ("a number from 0", lambda v: is_number(v) and v >= 0),
    "bool": ("true or false", lambda v: isinstance(v, bool)),
    "str": ("a string", _text),
    "strs": ("a list of strings", _list(_text)),
    "ints": ("a list of whole numbers from 0", _list(_whole(0))),
    "record": ("an object", lambda v: isinstance(v, dict)),
    "layers": ("'kinds', 'all' or a list of layer numbers", lambda v: v in ("kinds", "all") or _list(_whole(0))(v)),
}
"""What the value of each kind of field is, and the test for it."""


class Values:
    """The fields of one file. ``get`` gives a field's value by its name here; what is wrong goes to ``problems``."""

    def __init__(self, text: str, file: str):
        self.text, self.file = text, file
        self.problems: dict[Problem, None] = {}
        self.warnings: list[Problem] = []
        self.given: dict[str, tuple[str, Any]] = {}
        """Field name to the spelling in the file and the value."""
        self.ill: set[str] = set()
        """Fields whose value was refused: they are not missing too."""
        raw = self._parse()
        self.title = str(raw.get("model_type", "no model_type"))
        self.family = _family(raw)
        self._take(raw)

    def _parse(self) -> Mapping[str, Any]:
        try:
            raw = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", 0)
            raise Refusal(f"this is no JSON: {error}", Where(self.file, line, getattr(error, "colno", 0))) from None
        if not isinstance(raw, dict):
            raise Refusal("a config.json holds an object", Where(self.file), _WHICH)
        if "model_type" not in raw and "architectures" not in raw:
            raise Refusal("a config.json has 'model_type' or 'architectures'", Where(self.file), _WHICH)
        return raw

    def _take(self, raw: Mapping[str, Any]) -> None:
        for spelling, value in raw.items():
            name = SPELLINGS.get(spelling)
            if name is not None:
                self._field(name, spelling, value)
            elif spelling in WARNED and value:
                self.warnings.append(Problem(f"'{spelling}' is left aside: {WARNED[spelling]}", self.where(spelling)))
            elif spelling not in IGNORED and spelling not in WARNED and value is not None:
                hint = suggest(spelling, SPELLINGS)
                self.wrong(
                    spelling,
                    f"the field '{spelling}' is not understood",
                    hint or "take it out if it changes nothing in a decoder layer",
                )

    def _field(self, name: str, spelling: str, value: Any) -> None:
        before = len(self.problems)
        self._check(name, spelling, value)
        if len(self.problems) > before:
            self.ill.add(name)

    def _check(self, name: str, spelling: str, value: Any) -> None:
        """Take a field if its value is one that the field can have."""
        field = FIELDS[name]
        kind = field.kind.removesuffix("?")
        wanted, fits = _KINDS[kind]
        if name == "moe_layer_freq" and isinstance(value, list) and _list(_whole(0))(value):
            value = ["sparse" if v else "dense" for v in value]
            name, field = "mlp_layer_types", FIELDS["mlp_layer_types"]
        elif value is None:
            if not field.kind.endswith("?") and field.default is UNSAID:
                self.wrong(spelling, f"'{spelling}' is null, expected {wanted}", field.means)
                return
            value = field.default if field.default is not UNSAID and not field.kind.endswith("?") else None
        elif not fits(value):
            self.wrong(spelling, f"'{spelling}' is {_shown(value)}, expected {wanted}", field.means)
            return
        elif field.choices and value not in field.choices:
            self.wrong(
                spelling,
                f"'{spelling}' is '{value}', which is not built; known: {', '.join(field.choices)}",
                field.means,
            )
            return
        if kind in ("float", "positive", "eps") and value is not None:
            value = float(value)
        other = self.given.get(name)
        if other is not None and other[1] != value:
            self.wrong(spelling, f"'{spelling}' says {_shown(value)}, but '{other[0]}' says {_shown(other[1])}")
            return
        always = self.family.always.get(name, UNSAID)
        if always is not UNSAID and value != always:
            self.wrong(
                spelling,
                f"'{spelling}' is {_shown(value)}, but the code of {self.title} always has {_shown(always)}",
                field.means,
            )
            return
        self.given[name] = (spelling, value)

    def said(self, name: str) -> bool:
        """Whether the file itself has the field with a value other than null."""
        return name in self.given and self.given[name][1] is not None

    def get(self, name: str) -> Any:
        """The field's value: the family's where its code decides, else the file's, the family's, the default."""
        field = FIELDS[name]
        if name in self.family.always:
            return self.family.always[name]
        if name in self.given:
            return self.given[name][1]
        found = self.family.says.get(name, field.default)
        if found is UNSAID and name in self.ill:
            return None
        if found is UNSAID:
            one = f" (one of {', '.join(field.choices)})" if field.choices else ""
            self.missing(f"nothing says '{name}': {field.means}{one}", name)
            return None
        return found

    def need(self, name: str, why: str) -> Any:
        """As ``get``, for a field that must not be null here."""
        value = self.get(name)
        if value is None and name not in self.ill:
            self.missing(f"'{name}' is missing: {FIELDS[name].means}; {why}", name)
        return value

    def missing(self, what: str, name: str) -> None:
        """A field that is not there."""
        self.problems.setdefault(Problem(what, Where(self.file), f"add the field '{name}'"))

    def wrong(self, spelling: str, what: str, todo: str = "") -> None:
        """Something wrong with a field, shown at its place."""
        self.problems.setdefault(Problem(what, self.where(spelling), todo))

    def spelling(self, name: str) -> str:
        """How the file spells a field."""
        return self.given[name][0] if name in self.given else name

    def where(self, spelling: str) -> Where:
        """The line that a field stands on."""
        match = re.search(rf'^.*("{re.escape(spelling)}"\s*:).*$', self.text, re.M)
        if match is None:
            return Where(self.file)
        line = self.text.count("\n", 0, match.start()) + 1
        shown = match[0] if len(match[0]) <= 120 else ""
        return Where(self.file, line, match.start(1) - match.start() + 1, shown)

    def raise_if_wrong(self) -> None:
        """Raise a Refusal with every problem, in the order of the file, where there is one."""
        if self.problems:
            raise Refusal(sorted(self.problems, key=lambda p: (p.where.line == 0, p.where.line, p.where.column)))


def _family(raw: Mapping[str, Any]) -> Family:
    """The family of a file: by ``model_type``, else by ``architectures``, else one that says nothing."""
    names: Iterable[Any] = raw.get("architectures") or ()
    found = FAMILIES.get(str(raw.get("model_type")))
    for name in names if found is None and isinstance(names, list) else ():
        if str(name) in ARCHITECTURES:
            return FAMILIES[ARCHITECTURES[str(name)]]
    return found or Family()


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def read_values(path: Path) -> Values:
    """The fields of a file; Refusal where it cannot be read or is no JSON object."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig") if len(data) <= MAX_BYTES else ""
    except (OSError, ValueError) as error:
        raise Refusal(f"cannot read {path}: {error}", Where(str(path)), "give a config.json in UTF-8") from None
    if len(data) > MAX_BYTES:
        raise Refusal(f"{path} has {len(data) >> 10} KiB", Where(str(path)), "give a model's config.json")
    return Values(text, str(path))
