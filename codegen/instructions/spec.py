"""What one instruction declaration holds, and the registry of them.

A declaration gives the AscendC spelling with its parameter order, the pipe, which operands are read and written and
how many bytes of each, and the facts a cost model needs. Emitter, simulator, sync pass and static checks read it;
nothing else describes an instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace

from moec.codegen.kernel_ir import ITEMSIZE
from moec.codegen.scalar import Number

Extents = Mapping[str, int]
FIELD = {"u8": 2**8 - 1, "u16": 2**16 - 1, "u32": 2**32 - 1, "u64": 2**64 - 1, "i32": 2**31 - 1}
"""The largest value that a parameter of a kind holds."""


@dataclass(frozen=True, slots=True)
class Operand:
    """``role``: r, w or rw. ``spaces``: where it may live. ``dtypes``: what it may hold. ``align``: bytes that its
    address must be a multiple of, where that is more than its memory asks for."""

    name: str
    role: str
    spaces: tuple[str, ...]
    dtypes: tuple[str, ...]
    align: int = 0


@dataclass(frozen=True, slots=True)
class Param:
    """A scalar parameter. ``kind``: u8 u16 u32 u64 i32 (cast in C++, and the bound to respect), bool, float, elem (of
    the destination's dtype) or enum (printed as it stands, ``options`` lists the names)."""

    name: str
    kind: str
    options: tuple[str, ...] = ()
    hi: int = 0  # tighter upper bound than the type's, 0: none

    @property
    def top(self) -> int:
        """The largest value of an integer parameter."""
        return min(FIELD[self.kind], self.hi) if self.hi else FIELD[self.kind]


@dataclass(frozen=True, slots=True)
class Resolved:
    """An instruction with numbers in it: operand dtypes and evaluated parameters."""

    op: str
    dtypes: Mapping[str, str]
    p: Mapping[str, Number | bool | str]

    def n(self, name: str) -> int:
        return int(self.p[name])

    def size(self, operand: str) -> int:
        return ITEMSIZE[self.dtypes[operand]]


@dataclass(frozen=True, slots=True)
class Work:
    """Cost facts of one executed instruction.

    kind    copy | nd2nz | load2d | mmad | fixpipe | vector | scalar
    path    "GM->UB", "L1->L0A", ... for moves; "" otherwise
    bytes   payload moved (moves); bytes of the widest operand (vector)
    bursts  contiguous pieces on the device-memory side, each ``burst_bytes`` long, ``pitch`` bytes apart
    repeats 256-byte vector repeats of the widest operand
    m, n, k elements (mmad); dtype: of the source
    """

    kind: str
    path: str = ""
    bytes: int = 0
    dtype: str = ""
    bursts: int = 0
    burst_bytes: int = 0
    pitch: int = 0
    repeats: int = 0
    m: int = 0
    n: int = 0
    k: int = 0


@dataclass(frozen=True, slots=True)
class InstrSpec:
    """One instruction. ``pipe`` maps "SRC->DST" spaces to a pipe, or is the pipe. ``call`` is a format string over
    operand and parameter names; ``{T.x}`` is the C++ type of operand x."""

    name: str
    call: str
    pipe: str | Mapping[str, str]
    operands: tuple[Operand, ...]
    params: tuple[Param, ...]
    extents: Callable[[Resolved], Extents]
    work: Callable[[Resolved, str], Work]
    doc: str = ""
    pad: bool = False  # a padding site that can be masked
    header: str = ""  # what must be included besides kernel_operator.h in some CANN versions
    same_dtype: tuple[str, ...] = field(default=())
    only: Mapping[tuple[str, ...], Mapping[str, Container[object]]] = field(default_factory=dict)
    """What some combinations of dtypes (of all operands, in order) allow of a parameter: fewer values than it has."""
    closed: bool = False  # whether ``only`` lists every combination there is

    def operand(self, name: str) -> Operand:
        return next(o for o in self.operands if o.name == name)

    def combinations(self) -> Iterator[tuple[str, ...]]:
        """The dtypes that the operands may have together, in their order."""
        for dtypes in product(*(o.dtypes for o in self.operands)):
            if not self._disagree(dtypes) and (not self.closed or dtypes in self.only):
                yield dtypes

    def _disagree(self, dtypes: tuple[str, ...]) -> bool:
        return len({d for o, d in zip(self.operands, dtypes, strict=True) if o.name in self.same_dtype}) > 1

    def objection(self, dtypes: tuple[str, ...], params: Mapping[str, object]) -> str:
        """Why operands of ``dtypes`` or ``params`` are none of the call's; "" where they are."""
        for o, dtype in zip(self.operands, dtypes, strict=True):
            if dtype not in o.dtypes:
                return f"{o.name} is {dtype}, must be one of {', '.join(o.dtypes)}"
        if self._disagree(dtypes):
            given = ", ".join(f"{o.name} {d}" for o, d in zip(self.operands, dtypes, strict=True))
            return f"{', '.join(self.same_dtype)} must have one dtype, got {given}"
        if self.closed and dtypes not in self.only:
            return f"takes no {' '.join(dtypes)} ({', '.join(o.name for o in self.operands)})"
        for p in self.params:
            value = params[p.name]
            if p.kind == "enum" and value not in p.options:
                return f"{p.name} is {value}, must be one of {', '.join(p.options)}"
            allowed = self.only.get(dtypes, {}).get(p.name)
            if allowed is not None and isinstance(value, bool | int | str) and value not in allowed:
                return f"{p.name} is {value}, which {' '.join(dtypes)} do not take"
        return ""

    @property
    def spelled(self) -> str:
        """The call with the names of its operands and parameters; ``T`` stands for an operand's type."""
        names = {n: n for n in (*(o.name for o in self.operands), *(p.name for p in self.params))}
        return self.call.format(**names, T=SimpleNamespace(**{o.name: "T" for o in self.operands}))

    def pipe_of(self, spaces: Mapping[str, str]) -> str:
        """The pipe for operands living in ``spaces`` (by operand name)."""
        if isinstance(self.pipe, str):
            return self.pipe
        key = self.path_of(spaces)
        if key not in self.pipe:
            raise ValueError(f"{self.name} has no path {key}; it has {', '.join(self.pipe)}")
        return self.pipe[key]

    def path_of(self, spaces: Mapping[str, str]) -> str:
        """ "SRC->DST" of the first read operand and the first written one."""
        reads = [o.name for o in self.operands if "r" in o.role]
        writes = [o.name for o in self.operands if "w" in o.role]
        return f"{spaces[reads[0]]}->{spaces[writes[0]]}" if reads and writes else ""


INSTRUCTIONS: dict[str, InstrSpec] = {}


def declare(spec: InstrSpec) -> InstrSpec:
    """Enters ``spec`` in the table; a second declaration of a name is a programming error."""
    if spec.name in INSTRUCTIONS:
        raise ValueError(f"instruction {spec.name} declared twice")
    INSTRUCTIONS[spec.name] = spec
    return spec


def repeats_of(nbytes: int) -> int:
    """256-byte vector repeats covering ``nbytes``."""
    return -(-nbytes // 256)
