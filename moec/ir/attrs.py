"""Attribute values as text, and back.

A value is a bool, int, float, string, dtype (``!f32``), dimension (``2*T + 1``), tensor (``dense<f32[2]: [1.0,
2.0]>`` or
``dense<f32[8, 64]: KEY>`` for one whose contents lie in a side file), group of ranks (``@tp(8, 1)``: size and
stride), ``none``, or a list of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from moec.ir.data import INLINE_ELEMENTS, ArrayData, TensorData
from moec.ir.group import Group
from moec.ir.symbol import MAX_DEPTH, Expr, parse_dim
from moec.ir.types import DType, dtype

Store = Mapping[str, TensorData]
"""Contents of large tensors by key: what a module's side file holds."""


class UnreadData(TensorData):
    """A tensor known by key only: a text was read without its side file. Asking for the numbers is a ValueError."""

    __slots__ = ()

    def __init__(self, element: DType, shape: tuple[int, ...], key: str):
        super().__init__(element, shape)
        self._key = key

    def numpy(self) -> np.ndarray:
        raise ValueError(f"the contents of tensor {self.key} lie in a side file that was not given")

    def _make_key(self) -> str:
        raise AssertionError("an unread tensor is made with its key")


def print_attr(value: Any) -> str:
    """The text of one attribute value; TypeError for a kind that has none."""
    spell = _SPELL.get(type(value))
    if spell is not None:
        return spell(value)
    if isinstance(value, TensorData):
        return print_tensor(value)
    if isinstance(value, np.integer):
        return str(int(value))
    if isinstance(value, np.floating):
        return repr(float(value))
    raise TypeError(f"an attribute cannot be a {type(value).__name__}")


def _spell_list(values: Sequence[Any]) -> str:
    return "[" + ", ".join([print_attr(v) for v in values]) + "]"


_SPELL: dict[type, Callable[[Any], str]] = {
    type(None): lambda value: "none",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: repr,
    str: json.dumps,
    DType: lambda value: "!" + value.name,
    Expr: str,
    Group: str,
    tuple: _spell_list,
    list: _spell_list,
}


def is_inline(data: TensorData) -> bool:
    """Whether the tensor's numbers are printed in the text itself."""
    return data.size <= INLINE_ELEMENTS and isinstance(data, ArrayData) and data.array.dtype != object


def print_tensor(data: TensorData) -> str:
    """``dense<TYPE: numbers or key>``."""
    kind = f"{data.dtype.name}[{', '.join(map(str, data.shape))}]"
    if not is_inline(data):
        return f"dense<{kind}: {data.key}>"
    return f"dense<{kind}: [{', '.join(_number(x) for x in data.numpy().ravel())}]>"


def _number(x: Any) -> str:
    if isinstance(x, np.bool_):
        return "true" if x else "false"
    if isinstance(x, np.integer) or "int" in str(x.dtype):
        return str(int(x))
    return str(x) if isinstance(x, (np.float32, np.float64)) else repr(float(x))


class AttrReader:
    """Reads attribute values from ``text`` starting at ``at``; ValueError says what was expected."""

    def __init__(self, text: str, at: int, store: Store):
        self.text, self.at, self.store = text, at, store
        self.depth = 0

    def spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1

    def accept(self, token: str) -> bool:
        self.spaces()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise ValueError(f"expected '{token}'")

    def word(self) -> str:
        self.spaces()
        start = self.at
        while self.at < len(self.text) and (self.text[self.at].isalnum() or self.text[self.at] in "_."):
            self.at += 1
        if start == self.at:
            raise ValueError("expected a name")
        return self.text[start : self.at]

    def attrs(self) -> dict[str, Any]:
        """``{name = value, ...}``; an empty dict where there is no brace."""
        result: dict[str, Any] = {}
        if not self.accept("{") or self.accept("}"):
            return result
        while True:
            name = self.word()
            if name in result:
                raise ValueError(f"attribute '{name}' is given twice")
            self.expect("=")
            result[name] = self.value()
            if self.accept("}"):
                return result
            self.expect(",")

    def value(self) -> Any:
        self.spaces()
        c = self.text[self.at : self.at + 1]
        if c == '"':
            try:
                string, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
            except ValueError:
                raise ValueError("this string is not closed, or has an escape that JSON does not know") from None
            return string
        if c == "!":
            self.at += 1
            return dtype(self.word())
        if c == "[":
            self.at += 1
            return self.items()
        if c == "@":
            return self.group()
        if self.text.startswith("dense<", self.at):
            self.at += len("dense<")
            return self.tensor()
        return self.scalar(self.until(",}]>"))

    def group(self) -> Group:
        """``@name(size, stride)``."""
        self.expect("@")
        name = self.word()
        self.expect("(")
        size = parse_dim(self.until(","))
        self.expect(",")
        stride = parse_dim(self.until(")"))
        self.expect(")")
        return Group(name, size, stride)

    def items(self) -> tuple[Any, ...]:
        if self.accept("]"):
            return ()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"lists are nested deeper than {MAX_DEPTH}")
        values = [self.value()]
        while not self.accept("]"):
            self.expect(",")
            values.append(self.value())
        self.depth -= 1
        return tuple(values)

    def until(self, stops: str) -> str:
        start, depth = self.at, 0
        while self.at < len(self.text):
            c = self.text[self.at]
            if depth == 0 and c in stops:
                break
            depth += (c == "(") - (c == ")")
            self.at += 1
        return self.text[start : self.at].strip()

    @staticmethod
    def scalar(token: str) -> Any:
        fixed = {"true": True, "false": False, "none": None, "inf": float("inf"), "nan": float("nan")}
        if token in fixed:
            return fixed[token]
        try:
            return int(token)
        except ValueError:
            pass
        try:
            return float(token)
        except ValueError:
            return parse_dim(token)

    def tensor(self) -> TensorData:
        element = dtype(self.word())
        self.expect("[")
        shape = self.items()
        if not all(isinstance(d, int) and d >= 0 for d in shape):
            raise ValueError("the shape of a tensor is a list of sizes")
        self.expect(":")
        self.spaces()
        if self.accept("["):
            numbers = self.items()
            self.expect(">")
            try:
                with np.errstate(over="raise"):
                    return ArrayData(np.array(numbers, element.carrier).reshape(shape), element)
            except (TypeError, ValueError, ArithmeticError):
                raise ValueError(f"these are no numbers of {element}[{', '.join(map(str, shape))}]") from None
        key = self.until(">")
        self.expect(">")
        return self.store.get(key) or UnreadData(element, shape, key)
