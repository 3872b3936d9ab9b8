"""Packed sequences in attention: which keys a tile of queries may attend, told by two numbers a position.

Each position has where its sequence starts, and how many positions stand behind the sequence's end; zeros everywhere
are one sequence. A kernel makes them from where sequences start (cu_seqlens); the kernels of attention read them as
scalars, to leave out tiles of other sequences, and as vectors, to mask the tiles that sequences share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moec.codegen.builder import KernelBuilder
from moec.codegen.capacities import Capacities
from moec.codegen.kernel_ir import GmTensor, Kernel
from moec.codegen.kernels.attention_tile import Attention
from moec.codegen.scalar import Arg, Env, Scalar, ceildiv, evaluate, smin

CHUNK = 2048
"""Positions of one store."""


@dataclass(frozen=True, slots=True)
class Packed:
    """``first`` [S] i32: where a position's sequence starts; ``after`` [S] i32: positions behind its end."""

    first: GmTensor
    after: GmTensor


def packed_tensors(k: KernelBuilder, a: Attention) -> Packed | None:
    """The parameters, where sequences are packed."""
    if not a.packed:
        return None
    return Packed(k.gm("seqFirst", "i32", (a.queries,), "in"), k.gm("seqAfter", "i32", (a.queries,), "in"))


def packed_kernel(
    name: str, caps: Capacities, a: Attention, dtype: str, starts: int | None, source: Sequence[str] = ()
) -> Kernel:
    """first and after [S] from cu_seqlens [C] (argument C where ``starts`` is None), a sequence a core at a time."""
    k = KernelBuilder(name, "aiv", caps, source)
    positions: Scalar = k.arg("S") if isinstance(a.queries, Arg) else a.queries
    count: Scalar = k.arg("C", 1) if starts is None else starts
    given = k.gm("cuSeqlens", dtype, (count,), "in", "index")
    first, after = k.gm("seqFirst", "i32", (positions,), "out"), k.gm("seqAfter", "i32", (positions,), "out")
    values = [k.ub(n, "i32", CHUNK) for n in ("starts", "behind")]
    with k.loop("c", k.core, count - 1, k.cores) as c:
        start, stop = k.read("start", given[c]), k.read("stop", given[c + 1])
        with k.if_(stop > start):
            k.fill(values[0][0], start, CHUNK)
            k.fill(values[1][0], positions - stop, CHUNK)
        with k.loop("chunk", 0, ceildiv(stop - start, CHUNK)) as chunk:
            at = k.let("at", start + chunk * CHUNK)
            some = k.let("some", smin(CHUNK, stop - at))
            for to, value in zip((first, after), values, strict=True):
                k.store(to[at], value[0], some)
    total = a.queries if isinstance(a.queries, int) else 2 * CHUNK + 5
    for cores in (1, 2):
        number = 5 if starts is None else starts
        some_starts = [min(total, i * (total // 2)) for i in range(number - 1)] + [total]
        args = {"S": total, "C": number}
        k.witness(cores, {"cuSeqlens": some_starts}, **{n: args[n] for n in k.arguments()})
    return k.finish(count)


def witness_data(a: Attention, sizes: Mapping[str, int]) -> dict[str, list[int]]:
    """Numbers to check a kernel with: two sequences, the first a third of all positions and one."""
    if not a.packed:
        return {}
    queries = int(evaluate(a.queries, Env({}, sizes, {})))
    cut = min(queries, queries // 3 + 1)
    rest = queries - cut
    return {"seqFirst": [0] * cut + [cut] * rest, "seqAfter": [rest] * cut + [0] * rest}
