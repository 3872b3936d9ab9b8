"""A step that calls an operator of the vendor's library instead of launching a kernel of moec's.

Such an operator is called twice: ``<function>GetWorkspaceSize`` with its arguments, then ``<function>`` on a stream.
What it works on are strided views of the program's tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moec.ir.symbol import Dim


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as the library sees it. ``strides`` in elements, outermost first; none: dense. ``dtype`` as in the
    kernel IR; bytes that hold truth values are ``bool``."""

    tensor: str
    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True)
class Views:
    """A list of tensors."""

    items: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class Integers:
    """A list of whole numbers, which may be sizes."""

    items: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A number of the C++ type ``type``: an integer, a float, a bool, or the name of an enumerator."""

    type: str
    value: Dim | float | bool | str


Argument = View | Views | Integers | Number | str | None
"""A str is text; None is a null pointer."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """``arguments`` by the names of the vendor's parameters, in their order; ``results`` names those that are written.
    ``header`` declares the function, which is there from version ``since`` of the toolkit on."""

    function: str
    arguments: tuple[tuple[str, Argument], ...]
    results: tuple[str, ...]
    header: str
    since: str
    nodes: tuple[str, ...] = ()

    def views(self) -> Iterator[tuple[str, View]]:
        """Every view with the name of its parameter."""
        for name, argument in self.arguments:
            if isinstance(argument, View):
                yield name, argument
            elif isinstance(argument, Views):
                for item in argument.items:
                    yield name, item

    @property
    def tensors(self) -> tuple[str, ...]:
        """The program's tensors that it reads or writes, each once."""
        return tuple(dict.fromkeys(view.tensor for _, view in self.views()))


@dataclass(frozen=True, slots=True)
class Choice:
    """Why ``node`` was lowered as it was. ``calls``: the library's functions, none where a kernel of moec's runs.
    ``since``: the oldest toolkit that is known to have them. Times in microseconds, None where nobody asked.
    """

    node: str
    calls: tuple[str, ...]
    since: str
    reason: str
    library_us: float | None = None
    kernel_us: float | None = None
