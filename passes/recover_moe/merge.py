"""The computations of all experts as one: trees that differ only in their weights become one tree with a list of
weights."""

from __future__ import annotations

from collections.abc import Sequence

from moec.passes.recover_moe.contents import Tree
from moec.passes.recover_moe.static import Ref, changed


def merged(trees: Sequence[Tree]) -> Tree | None:
    """One tree for experts 0, 1, 2, ...; None where their computations differ in more than weights of equal shape."""
    first = trees[0]
    if all(t is first for t in trees):
        return first
    if any(t.op != first.op or len(t.args) != len(first.args) for t in trees):
        return None
    if first.op == "weight":
        return _weights(trees)
    if first.op == "route":
        return first if all(t.attrs is first.attrs for t in trees) else None
    if any(t.attrs != first.attrs for t in trees):
        return None
    args = [merged([t.args[j] for t in trees]) for j in range(len(first.args))]
    return None if None in args else Tree(first.op, tuple(a for a in args if a is not None), first.attrs)


def _weights(trees: Sequence[Tree]) -> Tree | None:
    """Weights of one expert each are stacked; one that is stacked already stays."""
    kinds = {t.attrs[0] for t in trees}
    refs: list[Ref] = [t.attrs[1] for t in trees]
    if kinds == {"stack"}:
        return trees[0] if all(r is refs[0] for r in refs) else None
    if kinds != {"one"} or any(r.shape != refs[0].shape or r.dtype is not refs[0].dtype for r in refs):
        return None
    return Tree("weight", (), ("stack", changed("stack", *refs)))
