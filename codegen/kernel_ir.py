"""The kernel IR: one tile program per kernel.

The AscendC source, the cycle count and the static checks are all read from this one form. Everything here is an
immutable value compared by structure, so ``parse(print(k)) == k`` is plain equality.

Memory spaces: GM, L1, L0A, L0B, L0C, UB, BT, FB. Pipes: S (scalar), V (vector), M (cube), MTE1 (L1 to L0), MTE2 (GM to
L1/UB), MTE3 (UB/L1 to GM), FIX (L0C out). Offsets of references count elements of the reference's dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from moec.codegen.scalar import Scalar, Var, binary

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")

ITEMSIZE = {
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "i64": 8,
    "i32": 4,
    "u32": 4,
    "i16": 2,
    "u16": 2,
    "i8": 1,
    "u8": 1,
    "u64": 8,
}
CPP = {
    "f32": "float",
    "f16": "half",
    "bf16": "bfloat16_t",
    "i64": "int64_t",
    "i32": "int32_t",
    "u32": "uint32_t",
    "i16": "int16_t",
    "u16": "uint16_t",
    "i8": "int8_t",
    "u8": "uint8_t",
    "u64": "uint64_t",
}
# Byte alignment of a buffer in each space (CANN asc-devkit docs, NPU arch 2201: hardware constraints).
ALIGN = {"UB": 32, "L1": 32, "L0A": 512, "L0B": 512, "L0C": 64, "BT": 64, "FB": 64}


@dataclass(frozen=True, slots=True)
class GmTensor:
    """A kernel parameter in device memory. ``shape`` is in scalars over the kernel's arguments.

    ``direction`` is in, out or inout; ``role`` says what it is to the reader (activation, weight, counts, ...).
    """

    name: str
    dtype: str
    shape: tuple[Scalar, ...]
    direction: str
    role: str = "activation"

    def __getitem__(self, offset: Scalar) -> GmRef:
        return GmRef(self.name, offset, self.dtype)

    @property
    def elements(self) -> Scalar:
        total: Scalar = 1
        for d in self.shape:
            total = binary("*", total, d)
        return total


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A run-time i64 argument and the bounds its value must lie in."""

    name: str
    lo: int = 0
    hi: int = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Buffer:
    """A planned on-chip buffer: ``slots`` copies of ``elems`` elements, slot i at ``offset + i * slot_bytes``."""

    name: str
    space: str
    dtype: str
    offset: int
    elems: int
    slots: int = 1

    @property
    def slot_bytes(self) -> int:
        a = ALIGN[self.space]
        return -(-self.elems * ITEMSIZE[self.dtype] // a) * a

    @property
    def bytes(self) -> int:
        return self.slot_bytes * self.slots

    def __getitem__(self, slot: Scalar) -> LocalRef:
        return LocalRef(self.name, slot, 0, self.dtype)


@dataclass(frozen=True, slots=True)
class GmRef:
    """Device memory from ``offset`` elements into parameter ``tensor``."""

    tensor: str
    offset: Scalar
    dtype: str

    def __getitem__(self, offset: Scalar) -> GmRef:
        return replace(self, offset=binary("+", self.offset, offset))


@dataclass(frozen=True, slots=True)
class LocalRef:
    """On-chip memory: ``slot`` of ``buffer`` seen as ``dtype``, from ``offset`` elements on."""

    buffer: str
    slot: Scalar
    offset: Scalar
    dtype: str

    def __getitem__(self, offset: Scalar) -> LocalRef:
        return replace(self, offset=binary("+", self.offset, offset))

    def cast(self, dtype: str) -> LocalRef:
        """The same bytes read as another dtype (ReinterpretCast); the offset must be 0 or a literal that stays
        whole."""
        if not isinstance(self.offset, int):
            raise ValueError(f"reinterpret {self.buffer} before indexing it")
        byte = self.offset * ITEMSIZE[self.dtype]
        if byte % ITEMSIZE[dtype]:
            raise ValueError(f"byte {byte} of {self.buffer} is no whole number of {dtype}")
        return replace(self, dtype=dtype, offset=byte // ITEMSIZE[dtype])


Ref = GmRef | LocalRef
ParamValue = Scalar | bool | str


@dataclass(frozen=True, slots=True)
class Instr:
    """One AscendC call. ``op`` names a declaration of moec.codegen.instructions; params follow that declaration."""

    op: str
    operands: tuple[Ref, ...]
    params: tuple[tuple[str, ParamValue], ...] = ()

    def param(self, name: str) -> ParamValue:
        for key, value in self.params:
            if key == name:
                return value
        raise KeyError(f"{self.op} has no parameter {name}")


@dataclass(frozen=True, slots=True)
class For:
    """``for var = start; var < stop; var += step``."""

    var: str
    start: Scalar
    stop: Scalar
    step: Scalar
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If:
    cond: Scalar
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Let:
    """Declares a scalar variable (i64 or f32)."""

    var: Var
    value: Scalar


@dataclass(frozen=True, slots=True)
class Assign:
    var: Var
    value: Scalar


@dataclass(frozen=True, slots=True)
class LoadScalar:
    """Declares ``var`` as one element of device or on-chip memory (GetValue)."""

    var: Var
    ref: Ref


@dataclass(frozen=True, slots=True)
class StoreScalar:
    """Writes one element (SetValue)."""

    ref: Ref
    value: Scalar


@dataclass(frozen=True, slots=True)
class SetFlag:
    """``src`` pipe, having finished all it was given so far, raises event ``id`` of the pair ``src``-``dst``."""

    src: str
    dst: str
    id: Scalar


@dataclass(frozen=True, slots=True)
class WaitFlag:
    """``dst`` pipe starts nothing more until event ``id`` of the pair ``src``-``dst`` is raised, and takes it down."""

    src: str
    dst: str
    id: Scalar


@dataclass(frozen=True, slots=True)
class Barrier:
    """PipeBarrier: later instructions of ``pipe`` start after earlier ones have finished. ``ALL`` is every pipe."""

    pipe: str


@dataclass(frozen=True, slots=True)
class SyncAll:
    """Every core of the kernel has finished all it was given before any goes on."""


@dataclass(frozen=True, slots=True)
class CrossCoreSet:
    """CrossCoreSetFlag<mode, pipe>(id) of a mixed kernel."""

    mode: int
    pipe: str
    id: Scalar


@dataclass(frozen=True, slots=True)
class CrossCoreWait:
    id: Scalar


@dataclass(frozen=True, slots=True)
class Comment:
    text: str


Stmt = (
    For
    | If
    | Let
    | Assign
    | LoadScalar
    | StoreScalar
    | Instr
    | SetFlag
    | WaitFlag
    | Barrier
    | SyncAll
    | CrossCoreSet
    | CrossCoreWait
    | Comment
)


@dataclass(frozen=True, slots=True)
class Witness:
    """Concrete run-time values a kernel is checked with: arguments, cores, and integer device data it reads scalars
    of."""

    args: tuple[tuple[str, int], ...] = ()
    cores: int = 1
    data: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """A whole kernel.

    ``core`` is aiv, aic or mix. ``blocks`` is the number of cores it wants (a scalar over arguments; the launch takes
    the smaller of it and what the chip has). ``source`` tells which nodes of the user's graph it computes.
    """

    name: str
    core: str
    params: tuple[GmTensor, ...]
    args: tuple[ScalarArg, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    blocks: Scalar = 1
    witnesses: tuple[Witness, ...] = ()
    source: tuple[str, ...] = field(default=())

    def buffer(self, name: str) -> Buffer:
        for b in self.buffers:
            if b.name == name:
                return b
        raise KeyError(name)

    def param(self, name: str) -> GmTensor:
        for p in self.params:
            if p.name == name:
                return p
        raise KeyError(name)


def space_of(kernel: Kernel, ref: Ref) -> str:
    """GM or the space of the buffer."""
    return "GM" if isinstance(ref, GmRef) else kernel.buffer(ref.buffer).space


def statements(block: Sequence[Stmt]) -> Iterator[Stmt]:
    """Every statement of ``block``, those inside loops and branches included, in the order they are written."""
    for s in block:
        yield s
        if isinstance(s, For):
            yield from statements(s.body)
        elif isinstance(s, If):
            yield from statements(s.then)
            yield from statements(s.orelse)
