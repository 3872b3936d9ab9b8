"""Rows that were taken in an order are gathered back in backward where forward has the inverse of the order."""

from __future__ import annotations

import pytest

from moec.autodiff import backward_nodes
from moec.ir.text import parse_module
from tests.support.train import check_gradients, joint, rng_arrays

INVERSE = '%i = scatter_elements(%n, {at}, %n) {{axis = 0, reduction = "none"}} : i64[{sorted}]'
SORTED_AGAIN = "%i = argsort(%o) {{axis = 0, descending = {d}}} : i64[T]"
SOURCE = """
func main(%x: f32[T, 3], %e: i64[{sorted}]) -> (y: f32[T, 3]) {{
  %s = sin(%x) : f32[T, 3]
  %o = argsort(%e) {{axis = 0, descending = false}} : i64[{sorted}]
  %n = iota() {{size = {sorted}, dtype = !i64}} : i64[{sorted}]
  %i = scatter_elements(%n, {at}, %n) {{axis = 0, reduction = "none"}} : i64[{sorted}]
  %g = gather(%s, %{taken}) {{axis = 0}} : f32[{sorted}, 3]
  %t = tanh(%g) : f32[{sorted}, 3]
  %b = gather(%t, %{back}) {{axis = 0}} : f32[{sorted}, 3]
  {last}
}}
"""


def source(taken: str = "o", back: str = "i", at: str = "%o", rows: str = "T") -> str:
    last = "return %b" if rows == "T" else "%r = concat(%b, %s) {axis = 0} : f32[T + 2, 3]\n  return %r"
    text = SOURCE.format(sorted=rows, at=at, taken=taken, back=back, last=last)
    return text if rows == "T" else text.replace("(y: f32[T, 3])", "(y: f32[T + 2, 3])")


def ops_of(text: str) -> list[str]:
    made = joint(parse_module(text))
    behind = backward_nodes(made.main)
    return [n.op for n in made.main if n in behind]


@pytest.mark.parametrize(("taken", "back"), [("o", "i"), ("i", "o")])
def test_an_order_and_its_inverse_are_each_others_way_back(taken: str, back: str) -> None:
    text = source(taken, back)
    ops = ops_of(text)
    assert ops.count("gather") == 2 and "scatter_nd" not in ops
    arrays = rng_arrays(x=(5, 3)) | {"e": rng_arrays(e=(5,))["e"].argsort()}
    check_gradients(parse_module(text), arrays, {}, ["x"])


@pytest.mark.parametrize(("taken", "back"), [("o", "i"), ("i", "o")])
def test_the_order_of_an_order_is_its_inverse_too(taken: str, back: str) -> None:
    text = source(taken, back).replace(INVERSE.format(at="%o", sorted="T"), SORTED_AGAIN.format(d="false"))
    assert "scatter_elements" not in text
    ops = ops_of(text)
    assert ops.count("gather") == 2 and "scatter_nd" not in ops
    arrays = rng_arrays(x=(5, 3)) | {"e": rng_arrays(e=(5,))["e"].argsort()}
    check_gradients(parse_module(text), arrays, {}, ["x"])
    falling = text.replace(SORTED_AGAIN.format(d="false"), SORTED_AGAIN.format(d="true"))
    assert ops_of(falling).count("argsort") == 2, "the largest first is no inverse: one is made for each"
    check_gradients(parse_module(falling), arrays, {}, ["x"])


def test_rows_that_are_only_some_of_a_table_are_added_up() -> None:
    ops = ops_of(source(rows="2"))
    assert ops.count("scatter_nd") == 1, "of T rows two are taken; those two are put in another order then"


def test_what_is_scattered_elsewhere_is_no_inverse() -> None:
    """Written where the keys say, which need not be each place once: what sorts has an inverse, which is made."""
    text = source("o", "o", at="%e")
    ops = ops_of(text)
    assert (ops.count("argsort"), ops.count("gather"), ops.count("scatter_nd")) == (1, 2, 0)
    arrays = rng_arrays(x=(5, 3)) | {"e": rng_arrays(e=(5,))["e"].argsort()}
    check_gradients(parse_module(text), arrays, {}, ["x"])
    assert ops_of(source("i", "i", at="%e")).count("scatter_nd") == 2
