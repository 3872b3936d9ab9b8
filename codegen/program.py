"""A program: kernels, the device buffers they use, and the ordered launches that make one layer.

Sizes are dimensions over the program's symbols; one program runs every size within the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from moec.codegen.interpret import value
from moec.codegen.kernel_ir import ITEMSIZE, Kernel
from moec.codegen.lengths import Length
from moec.codegen.operator_call import Choice, OperatorCall
from moec.codegen.steps import COMPUTE, HOST, Access, Bind, Collective, HostOp, Record, Wait
from moec.codegen.steps import accesses as own_accesses
from moec.codegen.streams import ends, last_uses
from moec.ir.data import TensorData
from moec.ir.group import Group
from moec.ir.symbol import Bounds, Dim, evaluate


@dataclass(frozen=True, slots=True)
class Tensor:
    """A device buffer (``kind`` input, weight or temp), one that holds a rank's place in a group (``rank``), or host
    memory (``host``). ``source`` is the group, else the name it has outside (file, npz key).
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    kind: str
    source: str = ""
    data: TensorData | None = field(default=None, compare=False)

    @property
    def elements(self) -> Dim:
        total: Dim = 1
        for d in self.shape:
            total = total * d
        return total

    @property
    def bytes(self) -> Dim:
        return self.elements * ITEMSIZE[self.dtype]

    def concrete(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with numbers for its symbols."""
        return tuple(evaluate(d, sizes) for d in self.shape)


@dataclass(frozen=True, slots=True)
class Output:
    """What is handed back as ``name``: the contents of ``tensor``, seen as ``shape``."""

    name: str
    tensor: str
    shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel run: ``operands`` maps its parameters to tensors, ``args`` its run-time arguments to dimensions.
    Nothing runs where ``when`` is 0. ``lengths``: parameters that hold a length, and the symbol that it is.
    """

    kernel: str
    operands: tuple[tuple[str, str], ...]
    args: tuple[tuple[str, Dim], ...]
    nodes: tuple[str, ...] = ()
    stream: str = COMPUTE
    when: Dim = 1
    lengths: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Memset:
    """Fills a tensor with zero bytes before what follows."""

    tensor: str
    stream: str = COMPUTE


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies all of ``source`` to ``target``; one of the two may lie on the host."""

    target: str
    source: str
    nodes: tuple[str, ...] = ()
    stream: str = COMPUTE


Step = Launch | Memset | Copy | OperatorCall | Collective | HostOp | Bind | Record | Wait


def stream_of(step: Step) -> str:
    """The stream that a step stands on, or the host."""
    return HOST if isinstance(step, HostOp | Bind) else getattr(step, "stream", COMPUTE)


def accesses(step: Step, kernels: Mapping[str, Kernel]) -> list[Access]:
    """Who touches which tensors in a step: each tensor once for reading, once for writing."""
    if isinstance(step, Launch):
        ways = {p.name: p.direction for p in kernels[step.kernel].params}
        found = [(step.stream, t, False) for p, t in step.operands if ways[p] != "out"]
        found += [(step.stream, t, True) for p, t in step.operands if ways[p] != "in"]
    elif isinstance(step, OperatorCall):
        found = [(COMPUTE, v.tensor, False) for p, v in step.views() if p not in step.results]
        found += [(COMPUTE, v.tensor, True) for p, v in step.views() if p in step.results]
    elif isinstance(step, Memset):
        found = [(step.stream, step.tensor, True)]
    elif isinstance(step, Copy):
        found = [(step.stream, step.source, False), (step.stream, step.target, True)]
    else:
        found = list(own_accesses(step))
    return list(dict.fromkeys(found))


def tensors_of(step: Step) -> tuple[str, ...]:
    """The tensors that a step reads or writes."""
    if isinstance(step, OperatorCall):
        return step.tensors
    if isinstance(step, Launch):
        return tuple(t for _, t in step.operands)
    if isinstance(step, Memset):
        return (step.tensor,)
    if isinstance(step, Copy):
        return step.target, step.source
    return tuple(dict.fromkeys(t for _, t, _ in own_accesses(step)))


@dataclass(frozen=True, slots=True)
class Program:
    """``symbols`` gives each symbol its bounds; ``steps`` are issued in order, each on its stream. ``groups`` are those
    that collectives run over. ``choices`` say of each node that the vendor's library was asked about what became of it.
    """

    name: str
    symbols: Mapping[str, Bounds]
    kernels: tuple[Kernel, ...]
    tensors: tuple[Tensor, ...]
    outputs: tuple[Output, ...]
    steps: tuple[Step, ...]
    cores: Mapping[str, int]
    choices: tuple[Choice, ...] = field(default=(), compare=False)
    groups: tuple[Group, ...] = ()
    shards: tuple[tuple[str, str, int], ...] = ()
    """Inputs and weights (their outside names) of which the members of a group have equal parts along an axis."""
    lengths: tuple[Length, ...] = ()
    """Sizes that only the device knows until all is done; in shapes of outputs alone."""

    def kernel(self, name: str) -> Kernel:
        return next(k for k in self.kernels if k.name == name)

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def of_kind(self, kind: str) -> Sequence[Tensor]:
        return [t for t in self.tensors if t.kind == kind]

    def launches(self) -> Sequence[Launch]:
        return [s for s in self.steps if isinstance(s, Launch)]

    def streams(self) -> list[str]:
        """The streams that its steps stand on, the compute stream first."""
        found = dict.fromkeys([COMPUTE, *(stream_of(s) for s in self.steps)])
        return [s for s in found if s != HOST]

    def accesses(self, step: Step) -> list[Access]:
        """Who touches which tensors in a step of this program."""
        return accesses(step, {k.name: k for k in self.kernels})

    def binds(self) -> dict[str, int]:
        """The symbols that data decides, and the steps (indices) from which on they are known."""
        return {s.symbol: i for i, s in enumerate(self.steps) if isinstance(s, Bind)}

    def decided(self) -> set[str]:
        """The symbols that data decides, whoever learns of them."""
        return {*self.binds(), *(x.symbol for x in self.lengths)}

    def read_all_the_same(self) -> list[str]:
        """Sizes that the layer leaves to the device, and the host reads: collectives or its own steps need them."""
        return [
            s.symbol for s in self.steps if isinstance(s, Bind) and s.nodes and s.nodes[0].startswith("device_size")
        ]

    def lifetimes(self) -> dict[str, tuple[int, int]]:
        """First and last step (indices) that use each temporary tensor; what is returned lives to the end. A use lasts
        as long as another stream may still run beside it.
        """
        out: dict[str, tuple[int, int]] = {}
        temps = {t.name for t in self.of_kind("temp")}
        for i, step in enumerate(self.steps):
            for name in tensors_of(step):
                if name in temps:
                    out[name] = (out.get(name, (i, i))[0], i)
        if len(self.streams()) > 1:
            kernels = {k.name: k for k in self.kernels}
            last = ends(self.steps, lambda step: accesses(step, kernels))
            out = {name: (first, last[name]) for name, (first, _) in out.items()}
        for name in self.kept():
            if name in out:
                out[name] = (out[name][0], len(self.steps))
        return out

    def kept(self) -> set[str]:
        """The tensors that the host reads when all is done."""
        return {*(o.tensor for o in self.outputs), *(x.tensor for x in self.lengths)}

    def deaths(self) -> dict[int, list[tuple[str, str]]]:
        """By step (index) the temporaries whose last use that is, each with the stream it stands on; one that another
        stream may still use beside it dies on none.
        """
        last = last_uses(self.steps, self.accesses)
        kept = self.kept()
        out: dict[int, list[tuple[str, str]]] = {}
        for name in (t.name for t in self.of_kind("temp")):
            step, stream = last.get(name, (0, HOST))
            if stream != HOST and name not in kept:
                out.setdefault(step, []).append((name, stream))
        return out

    def peak_bytes(self, sizes: Mapping[str, int]) -> int:
        """Most bytes of temporaries alive at one step, if each is freed after its last use."""
        life = self.lifetimes()
        size = {t.name: prod(t.concrete(sizes)) * ITEMSIZE[t.dtype] for t in self.of_kind("temp")}
        alive = [sum(size[n] for n, (a, b) in life.items() if a <= i <= b) for i in range(len(self.steps))]
        return max(alive, default=0)


def launch_args(launch: Launch, kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """The kernel's run-time arguments as numbers; ValueError when one is outside its bounds."""
    given = dict(launch.args)
    out = {}
    for a in kernel.args:
        n = evaluate(given[a.name], sizes)
        if not a.lo <= n <= a.hi:
            raise ValueError(f"kernel {kernel.name}: {a.name} = {n} is outside {a.lo}..{a.hi}")
        out[a.name] = n
    return out


def block_dim(kernel: Kernel, args: Mapping[str, int], cores: Mapping[str, int]) -> int:
    """Cores a launch uses: what the kernel wants, at least one, at most what the chip has."""
    wanted = int(value(kernel.blocks, ({}, args, {"idx": 0, "num": 1, "sub": 0})))
    return max(1, min(wanted, cores["aiv" if kernel.core == "aiv" else "aic"]))
