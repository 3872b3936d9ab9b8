"""Running a module for groups of ranks: every rank is simulated, and collectives exchange what the ranks have.

Each rank runs the module on a thread of its own until it comes to a collective, and goes on when all members of its
group have come to the same one. Ranks meet nowhere else, so that results do not depend on how threads are scheduled.
Where no rank can go on, they wait for one another in vain: a Refusal says where each one is.

An input or weight ``x`` of rank 3 is the array ``rank3.x``; else its part of the whole array ``x`` where the module
says how ``x`` lies over the ranks (``sharded``), else ``x`` itself, the same for every rank.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moec.diagnostics import Problem, Refusal, Where
from moec.eval.evaluator import Evaluator, Observer
from moec.ir.graph import Module, Node
from moec.ir.group import Group, Shard
from moec.ir.symbol import Dim, evaluate, symbols_of
from moec.ir.types import DType
from moec.ops.registry import OPS

Array = np.ndarray

MAX_RANKS = 1024
"""Ranks that are still simulated; each has all its tensors in memory."""


def groups(module: Module) -> list[Group]:
    """The groups that the module's collectives and sharded tensors name, each once, in order."""
    found: dict[Group, None] = {}
    for node in module.nodes():
        if "group" in node.attrs and isinstance(node.attrs["group"], Group):
            found[node.attrs["group"]] = None
    found.update(dict.fromkeys(s.group for shards in module.shards.values() for s in shards))
    return list(found)


def world(module: Module, sizes: Mapping[str, int]) -> int:
    """How many ranks run the module: the least number that every group divides into whole sets.

    Refusal where a group's size is not known, or two groups of one name differ.
    """
    problems: list[Problem] = []
    known: dict[str, Group] = {}
    for group in groups(module):
        try:
            found = group.at(sizes)
        except KeyError as error:
            problems.append(Problem(f"the size {error} of group {group.name} is not given", todo="give it: --set"))
            continue
        if known.setdefault(group.name, found) != found:
            problems.append(Problem(f"group {group.name} is both {known[group.name]} and {found}"))
    ranks = math.lcm(*(evaluate(g.extent, sizes) for g in known.values())) if known else 1
    if ranks > MAX_RANKS:
        what = f"{ranks} ranks would be simulated"
        problems.append(Problem(what, todo=f"evaluate with smaller groups: up to {MAX_RANKS} ranks"))
    if problems:
        raise Refusal(problems)
    return ranks


def part_names(name: str, arrays: Mapping[str, Array], ranks: int) -> list[str]:
    """The keys under which ``arrays`` gives ``name`` to every rank; empty where one has nothing of it."""
    own = [f"rank{rank}.{name}" for rank in range(ranks)]
    given = [key for key in own if key in arrays]
    if name in arrays:
        return [name, *given]
    return given if len(given) == ranks else []


def output_types(module: Module, sizes: Mapping[str, int]) -> dict[str, DType]:
    """The dtypes of the outputs that ``moec.eval.run`` gives, by the names that it gives them."""
    types = {n: v.type.dtype for n, v in zip(module.main.output_names, module.main.outputs, strict=True)}
    if not groups(module):
        return types
    return {f"rank{rank}.{name}": t for rank in range(world(module, sizes)) for name, t in types.items()}


def whole_shape(name: str, shape: Sequence[Dim], module: Module) -> tuple[Dim, ...]:
    """The shape of the whole that the input or weight ``name``, of which each rank has ``shape``, is a part of."""
    dims = list(shape)
    for shard in module.shards.get(name, ()):
        dims[shard.axis] = dims[shard.axis] * shard.group.size
    return tuple(dims)


def part_of(name: str, arrays: Mapping[str, Array], rank: int, shards: Sequence[Shard]) -> Array | None:
    """What ``rank`` has of the input or weight ``name``; None where ``arrays`` has nothing of it.

    Refusal where the whole does not split into parts. ``shards`` have numbers.
    """
    own = arrays.get(f"rank{rank}.{name}")
    if own is not None:
        return own
    whole = arrays.get(name)
    return None if whole is None else _cut(name, np.asarray(whole), rank, shards)


def _cut(name: str, whole: Array, rank: int, shards: Sequence[Shard]) -> Array:
    if not shards:
        return whole
    shard, size = shards[0], evaluate(shards[0].group.size, {})
    if whole.ndim <= shard.axis or whole.shape[shard.axis] % size:
        what = f"'{name}' with shape {list(whole.shape)} does not split into {size} parts along axis {shard.axis}"
        raise Refusal(what, Where(), f"it is sharded over {shard.group.name}: give the whole of it")
    step = whole.shape[shard.axis] // size
    start = shard.group.place(rank) * step
    return _cut(name, whole[(slice(None),) * shard.axis + (slice(start, start + step),)], rank, shards[1:])


def arrays_of(
    names: Iterable[str], arrays: Mapping[str, Array], rank: int, module: Module, sizes: Mapping[str, int]
) -> dict[str, Array]:
    """The arrays that ``rank`` has for ``names``, as far as ``arrays`` gives them."""
    found = {}
    for name in names:
        shards = [Shard(s.group.at(sizes), s.axis) for s in module.shards.get(name, ())]
        array = part_of(name, arrays, rank, shards)
        if array is not None:
            found[name] = array
    return found


def run_ranks(
    module: Module,
    inputs: Mapping[str, Array],
    weights: Mapping[str, Array],
    *,
    fp64: bool = False,
    observe: Observer | None = None,
    sizes: Mapping[str, int] | None = None,
) -> list[dict[str, Array]]:
    """The outputs of ``main`` by name, of every rank. Refusal as ``moec.eval.run``, with the ranks that it befell, and
    where ranks wait for one another in vain.
    """
    sizes = dict(sizes or {})
    used = {n for g in groups(module) for d in (g.size, g.stride) for n in symbols_of(d)}
    known = {n: s for n, s in sizes.items() if n in used}
    count = world(module, known)
    meeting = _Meeting(count)
    names = [n.attrs["name"] for n in module.nodes() if n.op == "weight"]
    given = [v.name for v in module.main.inputs]
    members = []
    for rank in range(count):
        own = arrays_of(names, weights, rank, module, known)
        member = _Rank(module, own, fp64, observe if rank == 0 else None, sizes, rank, meeting)
        members.append((member, arrays_of(given, inputs, rank, module, known)))
    threads = [threading.Thread(target=meeting.run, args=m, name=f"rank{m[0].rank}") for m in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    meeting.raise_if_wrong()
    return [meeting.outputs[rank] for rank in range(count)]


@dataclass
class _Request:
    """A collective that a rank has come to."""

    node: Node
    operands: list[Array | None]
    attrs: dict[str, Any]

    @property
    def key(self) -> tuple[Any, ...]:
        """What must be equal for members of a group to meet; sizes may differ, the reference checks them."""
        fixed = tuple((k, v) for k, v in self.attrs.items() if OPS[self.node.op].attrs[k].kind != "dim")
        return self.node.op, fixed, tuple(a is None or a.dtype for a in self.operands)

    def __str__(self) -> str:
        shapes = ", ".join("none" if a is None else f"{list(a.shape)}" for a in self.operands)
        place = f" ({self.node.origin})" if self.node.origin.sources else ""
        return f"{self.node.op} over {self.attrs['group'].name} of {shapes}{place}"


class _Stopped(Exception):
    """Another rank has failed, or none can go on."""


class _Rank(Evaluator):
    """One rank's evaluator."""

    def __init__(
        self,
        module: Module,
        weights: Mapping[str, Array],
        fp64: bool,
        observe: Observer | None,
        sizes: Mapping[str, int],
        rank: int,
        meeting: _Meeting,
    ):
        super().__init__(module, weights, fp64, observe, sizes)
        self.rank, self.meeting = rank, meeting

    def exchange(self, node: Node, operands: list[Array | None], attrs: dict[str, Any]) -> Any:
        """Wait until all members of the group have come to this collective; what this rank gets."""
        return self.meeting.exchange(self.rank, _Request(node, operands, attrs))


class _Meeting:
    """Where ranks meet. All its state is guarded by ``lock``."""

    def __init__(self, count: int):
        self.lock = threading.Condition()
        self.count = self.running = count
        self.waiting: dict[int, _Request] = {}
        self.results: dict[int, Any] = {}
        self.outputs: dict[int, dict[str, Array]] = {}
        self.failed: dict[int, BaseException] = {}
        self.stuck = False

    def run(self, member: _Rank, inputs: dict[str, Array]) -> None:
        """Run one rank to its end, or to its failure, which is kept."""
        try:
            self.outputs[member.rank] = member.main(inputs)
        except _Stopped:
            return
        except BaseException as error:
            self.failed[member.rank] = error
        with self.lock:
            self.running -= 1
            self.look()

    def exchange(self, rank: int, request: _Request) -> Any:
        with self.lock:
            self.waiting[rank] = request
            self.running -= 1
            self.meet(request.attrs["group"].members(rank))
            self.look()
            self.lock.wait_for(lambda: rank in self.results or self.stuck)
            if rank not in self.results:
                raise _Stopped
            result = self.results.pop(rank)
        if isinstance(result, BaseException):
            raise result
        return result

    def meet(self, members: tuple[int, ...]) -> None:
        """Do the collective where all members have come to the same one."""
        requests = [self.waiting[m] for m in members if m in self.waiting]
        if len(requests) < len(members) or any(r.key != requests[0].key for r in requests):
            return
        first = requests[0]
        given = [list(column) for column in zip(*(r.operands for r in requests), strict=True)]
        try:
            results: list[Any] = OPS[first.node.op].ref(*given, **first.attrs)
        except ValueError as error:
            results = [error] + [_Stopped() for _ in members[1:]]
        for member, result in zip(members, results, strict=True):
            del self.waiting[member]
            self.results[member] = result
        self.running += len(members)
        self.lock.notify_all()

    def look(self) -> None:
        """Stop the ranks that wait where none runs any more."""
        if self.running == 0 and self.waiting:
            self.stuck = True
            self.lock.notify_all()

    def raise_if_wrong(self) -> None:
        """Raise what ranks failed with, or where they wait in vain."""
        told: dict[Problem, list[int]] = {}
        for rank, error in sorted(self.failed.items()):
            if not isinstance(error, Refusal):
                raise error
            for problem in error.problems:
                told.setdefault(problem, []).append(rank)
        if told:
            raise Refusal([self._of(p, ranks) for p, ranks in told.items()])
        if self.stuck:
            places: dict[str, list[int]] = {}
            for rank in sorted(self.waiting):
                places.setdefault(str(self.waiting[rank]), []).append(rank)
            texts = [f"{_listed(ranks)} in {where}" for where, ranks in places.items()]
            if self.outputs:
                texts.append(f"{_listed(sorted(self.outputs))} at the end")
            todo = "every member of a group must come to the same collectives in the same order"
            raise Refusal("ranks wait for one another in vain: " + "; ".join(texts), Where(), todo)

    def _of(self, problem: Problem, ranks: list[int]) -> Problem:
        return (
            problem
            if len(ranks) == self.count
            else Problem(f"{_listed(ranks)}: {problem.what}", problem.where, problem.todo)
        )


def _listed(ranks: list[int]) -> str:
    """``rank 3``, ``ranks 0 to 7``, ``ranks 1, 4``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks == list(range(ranks[0], ranks[-1] + 1)) and len(ranks) > 2:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"
