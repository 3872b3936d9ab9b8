"""Builds a kernel: loops, buffers, scalars and instructions, without any synchronisation.

    k = KernelBuilder("scale", "aiv", capacities)
    n = k.arg("n")
    x, y = k.gm("x", "f32", (n,), "in"), k.gm("y", "f32", (n,), "out")
    buf = k.ub("buf", "f32", 4096, slots=2)
    with k.loop("t", k.core, ceildiv(n, 4096), k.cores) as t:
        b = buf[k.slot(2)]
        count = k.let("count", smin(4096, n - t * 4096))
        k.load(b, x[t * 4096], count)
        k.v("Muls", b, b, scalar=2.0, count=count)
        k.store(y[t * 4096], b, count)
    kernel = k.finish(blocks=ceildiv(n, 4096))

``finish`` derives every flag and barrier (moec.codegen.sync), so a kernel writer only loads, computes and stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from moec.codegen.capacities import Capacities
from moec.codegen.instructions import INSTRUCTIONS
from moec.codegen.instructions.vector import CASTS
from moec.codegen.kernel_ir import (
    ALIGN,
    CPP,
    ITEMSIZE,
    Assign,
    Buffer,
    Comment,
    CrossCoreSet,
    CrossCoreWait,
    For,
    GmRef,
    GmTensor,
    If,
    Instr,
    Kernel,
    Let,
    LoadScalar,
    LocalRef,
    ParamValue,
    Ref,
    ScalarArg,
    Stmt,
    StoreScalar,
    SyncAll,
    Witness,
)
from moec.codegen.scalar import Arg, Core, Scalar, Var, dtype_of
from moec.codegen.simplify import simplify
from moec.codegen.sync import synchronise
from moec.diagnostics import Problem, Refusal, Where

RESERVED = frozenset(CPP.values()) | {
    "alignas", "and", "auto", "bool", "break", "case", "char", "class", "const", "continue", "default", "delete", "do",
    "double", "elementCountList", "else", "enum", "explicit", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "long", "namespace", "new", "not", "operator", "or", "pipe", "private", "public", "register",
    "return", "rsvdCnt", "short", "signed", "sizeof", "sortedNum", "static", "struct", "switch", "template", "this",
    "throw", "tiling", "true", "try", "typedef", "union", "unsigned", "using", "virtual", "void", "volatile", "while",
    "xor",
}  # fmt: skip
"""What means something else in a kernel's source: keywords and types of C++ and AscendC, and names that the emitter and
the spellings of instructions declare."""


class KernelBuilder:
    """Collects the statements of one kernel. Names given twice, and reserved ones, get a number appended."""

    def __init__(self, name: str, core: str, capacities: Capacities, source: Sequence[str] = ()):
        self.name, self.kind, self.capacities, self.source = name, core, capacities, tuple(source)
        self.core, self.cores, self.sub = Core("idx"), Core("num"), Core("sub")
        self._params: list[GmTensor] = []
        self._args: list[ScalarArg] = []
        self._buffers: list[Buffer] = []
        self._top: dict[str, int] = {}
        self._blocks: list[list[Stmt]] = [[]]
        self._after: list[list[Stmt]] = [[]]
        self._head: list[Stmt] = []
        self._names: dict[str, int] = {}
        self._witnesses: list[Witness] = []

    # -- names, parameters, memory

    def _unique(self, name: str) -> str:
        n = self._names.get(name, int(name in RESERVED))
        self._names[name] = n + 1
        return name if n == 0 else self._unique(f"{name}{n + 1}")

    def arg(self, name: str, lo: int = 0, hi: int = 2**31 - 1) -> Arg:
        """A run-time i64 argument."""
        self._args.append(ScalarArg(self._unique(name), lo, hi))
        return Arg(self._args[-1].name)

    def arguments(self) -> list[str]:
        """Names of the run-time arguments so far."""
        return [a.name for a in self._args]

    def gm(self, name: str, dtype: str, shape: Sequence[Scalar], direction: str, role: str = "activation") -> GmTensor:
        """A device-memory parameter; ``direction`` is in, out or inout."""
        self._params.append(GmTensor(self._unique(name), dtype, tuple(shape), direction, role))
        return self._params[-1]

    def buffer(self, space: str, name: str, dtype: str, elems: int, slots: int = 1, align: int = 0) -> Buffer:
        """Reserves ``slots`` buffers of ``elems`` elements at the next free address, for the first a multiple of
        ``align`` bytes where that is more than the memory asks for; refuses what does not fit."""
        a = max(align, ALIGN[space])
        offset = -(-self._top.get(space, 0) // a) * a
        buffer = Buffer(self._unique(name), space, dtype, offset, elems, slots)
        room = self.capacities.bytes_of(space)
        self._buffers.append(buffer)
        if offset + buffer.bytes > room:
            live = ", ".join(
                f"{b.name} {b.slots} x {b.slot_bytes / 1024:.1f}" for b in self._buffers if b.space == space
            )
            raise Refusal(
                Problem(
                    f"kernel {self.name} needs {(offset + buffer.bytes) / 1024:.1f} KiB of {space}, "
                    f"{room / 1024:.1f} KiB are usable; live buffers in KiB: {live}",
                    Where(node=", ".join(self.source)),
                    "use a smaller tile",
                )
            )
        self._top[space] = offset + buffer.bytes
        return buffer

    def ub(self, name: str, dtype: str, elems: int, slots: int = 1, align: int = 0) -> Buffer:
        """A buffer of the unified buffer; ``buf[slot]`` is a reference (slot 0 when there is one)."""
        return self.buffer("UB", name, dtype, elems, slots, align)

    def free(self, space: str) -> int:
        """Bytes of ``space`` not reserved yet."""
        return self.capacities.bytes_of(space) - self._top.get(space, 0)

    @contextmanager
    def reuse(self, space: str = "UB") -> Iterator[None]:
        """Buffers reserved inside give their addresses back at the end (hazards between reusers are still
        synchronised)."""
        top = self._top.get(space, 0)
        yield
        self._top[space] = top

    # -- control and scalars

    def emit(self, stmt: Stmt) -> None:
        self._blocks[-1].append(stmt)

    def _push(self) -> None:
        self._blocks.append([])
        self._after.append([])

    def _pop(self) -> tuple[Stmt, ...]:
        after = self._after.pop()
        return tuple(self._blocks.pop() + after)

    @contextmanager
    def loop(self, name: str, start: Scalar, stop: Scalar, step: Scalar = 1) -> Iterator[Var]:
        """``for name in range(start, stop, step)``; yields the loop variable."""
        var = Var(self._unique(name))
        self._push()
        yield var
        self.emit(For(var.name, start, stop, step, self._pop()))

    @contextmanager
    def if_(self, cond: Scalar) -> Iterator[None]:
        self._push()
        yield
        self.emit(If(cond, self._pop()))

    @contextmanager
    def else_(self) -> Iterator[None]:
        """Directly after an ``if_``: its other branch."""
        last = self._blocks[-1].pop()
        assert isinstance(last, If) and not last.orelse, "else_ follows if_"
        self._push()
        yield
        self.emit(If(last.cond, last.then, self._pop()))

    def let(self, name: str, value: Scalar) -> Var:
        """Declares a scalar variable holding ``value``."""
        var = Var(self._unique(name), dtype_of(value))
        self.emit(Let(var, value))
        return var

    def assign(self, var: Var, value: Scalar) -> None:
        self.emit(Assign(var, value))

    def counter(self, name: str, start: Scalar = 0) -> Var:
        """An i64 variable declared at the top of the kernel, to be moved on with ``assign``."""
        var = Var(self._unique(name))
        self._head.append(Let(var, start))
        return var

    def slot(self, slots: int, name: str = "ping") -> Var:
        """A number that runs 0, 1, ..., slots - 1, 0, ... over the executions of the enclosing loop body.

        It goes on counting when an outer loop starts the inner one again, so double buffering runs through.
        """
        var = self.counter(name)
        self._after[-1].append(Assign(var, (var + 1) % slots))
        return var

    def read(self, name: str, ref: Ref) -> Var:
        """One element as a scalar: of device memory (expert counts) or of on-chip memory."""
        var = Var(self._unique(name), "f32" if ref.dtype in ("f32", "f16") else "i64")
        self.emit(LoadScalar(var, ref))
        return var

    def write(self, ref: Ref, value: Scalar) -> None:
        """Writes one element with the scalar unit (slow)."""
        self.emit(StoreScalar(ref, value))

    def comment(self, text: str) -> None:
        self.emit(Comment(text))

    @contextmanager
    def on_cube(self) -> Iterator[None]:
        """What the cube core of a mixed kernel does; ``else_`` after it is what its vector cores do."""
        with self.if_(Core("aic")):
            yield

    def cross_set(self, pipe: str, id: int) -> None:
        """All that ``pipe`` was given so far is done: told to the other side of the group (mode 2)."""
        self.emit(CrossCoreSet(2, pipe, id))

    def cross_wait(self, id: int) -> None:
        """Nothing goes on until the other side has raised ``id``: the cube core, or both vector cores."""
        self.emit(CrossCoreWait(id))

    def sync_all(self) -> None:
        """Every core reaches this point, with all its work done, before any goes on."""
        self.emit(SyncAll())

    # -- instructions

    def op(self, name: str, *operands: Ref, **params: ParamValue) -> None:
        """Any declared instruction: operands and parameters as its declaration lists them."""
        spec = INSTRUCTIONS[name]
        if len(operands) != len(spec.operands):
            raise TypeError(f"{name} takes operands {[o.name for o in spec.operands]}")
        if set(params) != {p.name for p in spec.params}:
            raise TypeError(f"{name} takes parameters {[p.name for p in spec.params]}, not {sorted(params)}")
        if objection := spec.objection(tuple(ref.dtype for ref in operands), params):
            raise TypeError(f"{name}: {objection}")
        self.emit(Instr(name, tuple(operands), tuple((p.name, params[p.name]) for p in spec.params)))

    v = op  # vector instructions read better as k.v("Add", ...)

    def cast(self, dst: LocalRef, src: LocalRef, count: Scalar, mode: str = "") -> None:
        """Cast; the mode defaults to round-to-nearest-even where the pair of dtypes rounds, to none where it does
        not."""
        if (src.dtype, dst.dtype) not in CASTS:
            raise TypeError(f"Cast has no {src.dtype} to {dst.dtype}")
        default = "RINT" if "RINT" in CASTS[src.dtype, dst.dtype] else "NONE"
        self.op("Cast", dst, src, mode=f"RoundMode::CAST_{mode or default}", count=count)

    def load(
        self,
        dst: LocalRef,
        src: GmRef,
        cols: Scalar,
        rows: Scalar = 1,
        pitch: Scalar | None = None,
        dst_gap: Scalar = 0,
        pad: float | int | None = None,
        right: Scalar = 0,
    ) -> None:
        """``rows`` rows of ``cols`` elements from device memory, ``pitch`` elements apart (default: dense), any width.

        Each row starts on a 32-byte block of UB, ``dst_gap`` blocks after the one before. With ``pad``, ``right``
        elements of that value follow each row (at most 32 bytes).
        """
        size = ITEMSIZE[dst.dtype]
        gap = 0 if pitch is None else (pitch - cols) * size
        self.op(
            "DataCopyPadIn",
            dst,
            src,
            blockCount=rows,
            blockLen=cols * size,
            srcStride=gap,
            dstStride=dst_gap,
            isPad=pad is not None,
            leftPadding=0,
            rightPadding=right,
            paddingValue=0 if pad is None else pad,
        )

    def store(
        self,
        dst: GmRef,
        src: LocalRef,
        cols: Scalar,
        rows: Scalar = 1,
        pitch: Scalar | None = None,
        src_gap: Scalar = 0,
    ) -> None:
        """``rows`` rows of ``cols`` elements to device memory, ``pitch`` elements apart there; rows of UB start on
        32-byte blocks, ``src_gap`` whole blocks between them."""
        size = ITEMSIZE[src.dtype]
        gap = 0 if pitch is None else (pitch - cols) * size
        self.op("DataCopyPadOut", dst, src, blockCount=rows, blockLen=cols * size, srcStride=src_gap, dstStride=gap)

    def fill(self, dst: LocalRef, value: Scalar, count: Scalar) -> None:
        self.op("Duplicate", dst, scalar=value, count=count)

    # -- end

    def witness(self, cores: int = 1, data: Mapping[str, Sequence[int]] | None = None, **args: int) -> None:
        """Run-time values to check the kernel with; give several: no work, one tile, many tiles, ragged ones."""
        self._witnesses.append(
            Witness(
                tuple((a.name, args[a.name]) for a in self._args),
                cores,
                tuple((name, tuple(values)) for name, values in (data or {}).items()),
            )
        )

    def draft(self, blocks: Scalar = 1) -> Kernel:
        """The kernel as written, without synchronisation."""
        assert len(self._blocks) == 1, "a loop or branch is still open"
        return Kernel(
            self.name,
            self.kind,
            tuple(self._params),
            tuple(self._args),
            tuple(self._buffers),
            tuple(self._head) + tuple(self._blocks[0]),
            blocks,
            tuple(self._witnesses),
            self.source,
        )

    def finish(self, blocks: Scalar = 1) -> Kernel:
        """The kernel with its flags and barriers; ``blocks`` is how many cores it wants."""
        return synchronise(simplify(self.draft(blocks)))
