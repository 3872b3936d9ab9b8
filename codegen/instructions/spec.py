"""What one instruction declaration holds, and the registry of them.

A declaration gives the AscendC spelling with its parameter order, the pipe, which operands are read and written and
how many bytes of each, and the facts a cost model needs. Emitter, simulator, sync pass and static checks read it;
nothing else describes an instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from moec.codegen.kernel_ir import ITEMSIZE
from moec.codegen.scalar import Number

Extents = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Operand:
    """``role``: r, w or rw. ``spaces``: where it may live. ``dtypes``: what it may hold (empty: any)."""

    name: str
    role: str
    spaces: tuple[str, ...]
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Param:
    """A scalar parameter. ``kind``: u8 u16 u32 u64 i32 (cast in C++, and the bound to respect), bool, float, elem (of
    the destination's dtype) or enum (printed as it stands, ``options`` lists the names)."""

    name: str
    kind: str
    options: tuple[str, ...] = ()
    hi: int = 0  # tighter upper bound than the type's, 0: none


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

    def operand(self, name: str) -> Operand:
        return next(o for o in self.operands if o.name == name)

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
