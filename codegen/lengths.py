"""Lengths that only the device knows: a kernel reads them from device memory, the host launches it for the most there
may be.

``reading`` makes of a kernel whose run-time arguments depend on such lengths one that takes their upper bounds as
arguments and works the arguments out itself: the bounds say how many cores it gets and how large its tensors are, the
numbers read say what it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from moec.codegen.dims import scalar_of
from moec.codegen.kernel_ir import (
    Assign,
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
    Ref,
    ScalarArg,
    SetFlag,
    Stmt,
    StoreScalar,
    WaitFlag,
    Witness,
    statements,
)
from moec.codegen.scalar import Arg, Bin, Choose, Scalar, Var, binary, dtype_of, smin
from moec.ir.symbol import (
    Bounds,
    Call,
    Dim,
    Expr,
    bounds,
    ceildiv,
    dmax,
    dmin,
    evaluate,
    floordiv,
    mod,
    substitute,
    sym,
    symbols_of,
)

LENGTH = "length"
"""Role of a parameter that holds a length."""
CHECKED = (0, 1, 3, 70)
"""What lengths are in checks where the kernel's own checks tell none."""


@dataclass(frozen=True, slots=True)
class Length:
    """``symbol`` is what ``tensor``, one integer on the device, holds: at least ``low``; there is room for ``most``,
    which names no length."""

    symbol: str
    tensor: str
    low: int
    most: Dim
    nodes: tuple[str, ...] = ()


def upper(dim: Dim, lengths: Mapping[str, Length]) -> Dim:
    """The most that ``dim`` may be, over the symbols that the host knows; dimensions and their factors are not
    negative."""
    return _end(dim, lengths, True)


def _end(dim: Dim, lengths: Mapping[str, Length], high: bool) -> Dim:
    if isinstance(dim, int) or not any(s in lengths for s in symbols_of(dim)):
        return dim
    assert isinstance(dim, Expr)
    total: Dim = 0
    for mono, coeff in dim.terms:
        product: Dim = coeff
        for atom in mono:
            product = product * _atom_end(atom, lengths, high == (coeff > 0))
        total = total + product
    return total


def _atom_end(atom: str | Call, lengths: Mapping[str, Length], high: bool) -> Dim:
    if isinstance(atom, str):
        if atom not in lengths:
            return sym(atom)
        return lengths[atom].most if high else lengths[atom].low
    a, b = atom.a, atom.b
    if atom.fn in ("floordiv", "ceildiv"):
        build = floordiv if atom.fn == "floordiv" else ceildiv
        return build(_end(a, lengths, high), _end(b, lengths, not high))
    if atom.fn == "mod":
        touched = any(s in lengths for d in (a, b) for s in symbols_of(d))
        return mod(a, b) if not touched else _end(b, lengths, True) - 1 if high else 0
    build = dmin if atom.fn == "min" else dmax
    return build(_end(a, lengths, high), _end(b, lengths, high))


def read_by(dims: Sequence[Dim], lengths: Mapping[str, Length]) -> list[str]:
    """The lengths that ``dims`` depend on, in the order of ``lengths``."""
    used = {s for d in dims for s in symbols_of(d)}
    return [s for s in lengths if s in used]


def reading(
    kernel: Kernel,
    args: Mapping[str, Dim],
    when: Sequence[Dim],
    lengths: Mapping[str, Length],
    dtypes: Mapping[str, str],
    table: Mapping[str, Bounds],
) -> tuple[Kernel, dict[str, str], dict[str, Dim]]:
    """The kernel that reads its lengths, the tensors of the parameters that it has more, and what to launch it with.

    It does nothing where one of ``when`` is 0. ``dtypes`` are those of the tensors that hold lengths, ``table`` gives
    the bounds of symbols.
    """
    own = read_by([*args.values(), *when], lengths)
    taken = {a.name for a in kernel.args} | {p.name for p in kernel.params} | _variables(kernel)
    new_args, given = list(kernel.args), {name: upper(d, lengths) for name, d in args.items()}
    params, operands, head = list(kernel.params), {}, list[Stmt]()

    def fresh(text: str) -> str:
        base, n = re.sub(r"\W+", "_", text), 2
        name = base
        while name in taken:
            name, n = f"{base}{n}", n + 1
        taken.add(name)
        return name

    def argument(dim: Dim, base: str) -> Scalar:
        """``dim``, which names no length, as an argument."""
        if isinstance(dim, int):
            return dim
        for name, have in given.items():
            if have == dim:
                return Arg(name)
        low, high = bounds(dim, table)
        new_args.append(ScalarArg(fresh(base), max(0, low), high))
        given[new_args[-1].name] = dim
        return Arg(new_args[-1].name)

    known: dict[str, Scalar] = {}
    tensors: dict[str, str] = {}
    for s in own:
        length = lengths[s]
        p = GmTensor(fresh(f"length_{s}"), dtypes[length.tensor], (1,), "in", LENGTH)
        params.append(p)
        operands[p.name], tensors[s] = length.tensor, p.name
        read, var = Var(fresh(f"read_{s}")), Var(fresh(f"now_{s}"))
        head += [LoadScalar(read, GmRef(p.name, 0, p.dtype)), Let(var, smin(read, argument(length.most, f"most_{s}")))]
        known[s] = var

    def scalar(dim: Dim) -> Scalar:
        found: dict[str, Scalar] = dict(known)
        for s in symbols_of(dim):
            if s not in found:
                found[s] = argument(sym(s), f"size_{s}")
        return _replaced(scalar_of(dim), found)

    worked: dict[str, Scalar] = {}
    for name, dim in args.items():
        if read_by([dim], lengths):
            value = scalar(dim)
            if not isinstance(value, Var):
                var = Var(fresh(f"now_{name}"), dtype_of(value))
                head.append(Let(var, value))
                value = var
            worked[name] = value
    body = tuple(_statement(s, worked) for s in kernel.body)
    for dim in when:
        if read_by([dim], lengths):
            body = (If(binary(">", scalar(dim), 0), body),)
    made = replace(kernel, params=tuple(params), args=tuple(new_args), body=(*head, *body), witnesses=())
    checks = _witnesses(kernel, made, args, given, tensors, lengths, table)
    return replace(made, witnesses=checks), operands, given


def _variables(kernel: Kernel) -> set[str]:
    found: set[str] = set()
    for s in statements(kernel.body):
        if isinstance(s, For):
            found.add(s.var)
        elif isinstance(s, Let | LoadScalar):
            found.add(s.var.name)
    return found


def _witnesses(
    kernel: Kernel,
    made: Kernel,
    args: Mapping[str, Dim],
    given: Mapping[str, Dim],
    tensors: Mapping[str, str],
    lengths: Mapping[str, Length],
    table: Mapping[str, Bounds],
) -> tuple[Witness, ...]:
    """The kernel's own checks with the lengths that its arguments tell, else lengths of ``CHECKED``."""
    found: list[Witness] = []
    symbols = sorted({s for d in (*args.values(), *given.values()) for s in symbols_of(d)} | set(tensors))
    for w in kernel.witnesses:
        env = _solved(dict(w.args), args)
        if set(symbols) <= set(env):
            found += _witness(made, w.cores, dict(w.data), env, given, tensors, lengths)
    if not found:
        for n in CHECKED:
            env = {s: min(max(n, low), high) for s in symbols for low, high in [table[s]]}
            for cores in (1, 2):
                found += _witness(made, cores, {}, env, given, tensors, lengths)
    return tuple(dict.fromkeys(found))


def _solved(numbers: Mapping[str, int], args: Mapping[str, Dim]) -> dict[str, int]:
    """The symbols at which ``args`` are ``numbers``; none where there are no such ones."""
    env: dict[str, int] = {}
    for name, dim in args.items():
        terms = [t for t in dim.terms if t[0]] if isinstance(dim, Expr) else []
        if len(terms) == 1 and len(terms[0][0]) == 1 and isinstance(terms[0][0][0], str):
            symbol, coeff = terms[0][0][0], terms[0][1]
            rest = numbers[name] - evaluate(substitute(dim, {symbol: 0}), {})
            if rest % coeff == 0 and rest // coeff >= 0:
                env.setdefault(symbol, rest // coeff)
    open_ = {s for d in args.values() for s in symbols_of(d)} - set(env)
    if open_ or any(evaluate(d, env) != numbers[name] for name, d in args.items()):
        return {}
    return env


def _witness(
    made: Kernel,
    cores: int,
    data: Mapping[str, tuple[int, ...]],
    env: Mapping[str, int],
    given: Mapping[str, Dim],
    tensors: Mapping[str, str],
    lengths: Mapping[str, Length],
) -> list[Witness]:
    """One check, if there is room for its lengths."""
    if any(evaluate(lengths[s].most, env) < env[s] for s in tensors):
        return []
    numbers = tuple((a.name, evaluate(given[a.name], env)) for a in made.args)
    read = {p: (env[s],) for s, p in tensors.items()}
    return [Witness(numbers, cores, tuple({**data, **read}.items()))]


def _replaced(s: Scalar, by: Mapping[str, Scalar]) -> Scalar:
    """``s`` with arguments replaced."""
    if isinstance(s, Arg):
        return by.get(s.name, s)
    if isinstance(s, Bin):
        return binary(s.op, _replaced(s.a, by), _replaced(s.b, by))
    if isinstance(s, Choose):
        return Choose(_replaced(s.cond, by), _replaced(s.a, by), _replaced(s.b, by))
    return s


def _ref(r: Ref, by: Mapping[str, Scalar]) -> Ref:
    offset = _replaced(r.offset, by)
    return (
        replace(r, offset=offset, slot=_replaced(r.slot, by)) if isinstance(r, LocalRef) else replace(r, offset=offset)
    )


def _statement(s: Stmt, by: Mapping[str, Scalar]) -> Stmt:
    """``s``, and what stands in it, with arguments replaced."""
    if isinstance(s, For):
        body = tuple(_statement(x, by) for x in s.body)
        return For(s.var, _replaced(s.start, by), _replaced(s.stop, by), _replaced(s.step, by), body)
    if isinstance(s, If):
        then, orelse = (tuple(_statement(x, by) for x in part) for part in (s.then, s.orelse))
        return If(_replaced(s.cond, by), then, orelse)
    if isinstance(s, Let | Assign):
        return replace(s, value=_replaced(s.value, by))
    if isinstance(s, LoadScalar):
        return LoadScalar(s.var, _ref(s.ref, by))
    if isinstance(s, StoreScalar):
        return StoreScalar(_ref(s.ref, by), _replaced(s.value, by))
    if isinstance(s, Instr):
        numbers = tuple((n, p if isinstance(p, str | bool) else _replaced(p, by)) for n, p in s.params)
        return Instr(s.op, tuple(_ref(r, by) for r in s.operands), numbers)
    if isinstance(s, SetFlag | WaitFlag | CrossCoreSet | CrossCoreWait):
        return replace(s, id=_replaced(s.id, by))
    return s
