"""Laws of the symbol algebra, against evaluation with Python integers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moec.ir.symbol import (
    Dim,
    Expr,
    bounds,
    ceildiv,
    dmax,
    dmin,
    evaluate,
    exact_div,
    floordiv,
    mod,
    parse_dim,
    substitute,
    sym,
    symbols_of,
)

NAMES = ("T", "S", "n_0")
LAW = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
envs = st.fixed_dictionaries({n: st.integers(0, 40) for n in NAMES})
divisors = st.one_of(st.integers(1, 9), st.sampled_from(NAMES).map(lambda n: sym(n) + 1))


def _combine(inner: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    return st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, divisors).map(lambda p: floordiv(p[0], p[1])),
        st.tuples(inner, divisors).map(lambda p: ceildiv(p[0], p[1])),
        st.tuples(inner, divisors).map(lambda p: mod(p[0], p[1])),
        st.tuples(inner, inner).map(lambda p: dmin(p[0], p[1])),
        st.tuples(inner, inner).map(lambda p: dmax(p[0], p[1])),
    )


dims: st.SearchStrategy[Dim] = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from(NAMES).map(sym)), _combine, max_leaves=6
)


@LAW
@given(dims, dims, dims)
def test_ring_laws_hold_as_equality(a: Dim, b: Dim, c: Dim) -> None:
    assert a + b == b + a and a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a + 0 == a and a * 1 == a and a * 0 == 0 and a - a == 0
    assert 0 - (0 - a) == a and -a == 0 - a and a - b == -(b - a)
    assert (a + b) - b == a


@LAW
@given(dims, dims, envs)
def test_evaluation_is_a_homomorphism(a: Dim, b: Dim, env: dict[str, int]) -> None:
    x, y = evaluate(a, env), evaluate(b, env)
    assert evaluate(a + b, env) == x + y
    assert evaluate(a - b, env) == x - y
    assert evaluate(a * b, env) == x * y
    assert evaluate(-a, env) == -x
    assert evaluate(dmin(a, b), env) == min(x, y)
    assert evaluate(dmax(a, b), env) == max(x, y)


@LAW
@given(dims, divisors, envs)
def test_division_rounds_as_python_does(a: Dim, b: Dim, env: dict[str, int]) -> None:
    x, y = evaluate(a, env), evaluate(b, env)
    assert evaluate(floordiv(a, b), env) == x // y
    assert evaluate(ceildiv(a, b), env) == -(-x // y)
    assert evaluate(mod(a, b), env) == x % y
    quotient = exact_div(a, b)
    if quotient is not None:
        assert evaluate(quotient, env) * y == x


@LAW
@given(dims, dims)
def test_a_product_divides_back(a: Dim, b: Dim) -> None:
    if isinstance(b, int) and b != 0:
        assert exact_div(a * b, b) == a
        if b > 0:
            assert floordiv(a * b, b) == ceildiv(a * b, b) == a and mod(a * b, b) == 0


@LAW
@given(dims, envs, st.fixed_dictionaries({n: st.integers(0, 10) for n in NAMES}))
def test_bounds_contain_every_evaluation(a: Dim, env: dict[str, int], slack: dict[str, int]) -> None:
    table = {n: (max(0, env[n] - slack[n]), env[n] + slack[n]) for n in NAMES}
    low, high = bounds(a, table)
    assert low <= evaluate(a, env) <= high


@LAW
@given(dims)
def test_bounds_of_a_point_are_the_point_for_sums_and_products(a: Dim) -> None:
    env = dict.fromkeys(NAMES, 3)
    if not any(f in str(a) for f in ("mod", "(")):
        assert bounds(a, dict.fromkeys(NAMES, (3, 3))) == (evaluate(a, env),) * 2


@LAW
@given(dims, st.fixed_dictionaries(dict.fromkeys(NAMES, dims)), envs)
def test_substituting_then_evaluating_is_evaluating_twice(a: Dim, env: dict[str, Dim], point: dict[str, int]) -> None:
    inner = {n: evaluate(d, point) for n, d in env.items()}
    if all(v >= 0 for v in inner.values()):
        assert evaluate(substitute(a, env), point) == evaluate(a, inner)


@LAW
@given(dims)
def test_text_reads_back(a: Dim) -> None:
    again = parse_dim(str(a))
    assert again == a and str(again) == str(a) and hash(again) == hash(a)


@LAW
@given(dims)
def test_a_constant_is_an_int(a: Dim) -> None:
    assert isinstance(a, Expr) == bool(list(symbols_of(a)))


@LAW
@given(dims)
def test_full_substitution_leaves_a_number(a: Dim) -> None:
    env = {n: i + 2 for i, n in enumerate(NAMES)}
    assert substitute(a, env) == evaluate(a, env)
    assert isinstance(substitute(a, env), int)


@LAW
@given(st.text(alphabet="TS01 9+-*(),floordivmax.#", max_size=30))
def test_any_text_is_a_dimension_or_a_value_error(text: str) -> None:
    try:
        again = parse_dim(text)
    except ValueError:
        return
    assert parse_dim(str(again)) == again


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda t, s: 2 * t, lambda t, s: t + t),
        (lambda t, s: (t + 1) * 2, lambda t, s: 2 * t + 2),
        (lambda t, s: (t + s) * (t - s), lambda t, s: t * t - s * s),
        (lambda t, s: floordiv(4 * t * s, 2 * s), lambda t, s: 2 * t),
        (lambda t, s: dmin(t, s), lambda t, s: dmin(s, t)),
        (lambda t, s: floordiv(t, 1), lambda t, s: t),
    ],
)
def test_equal_sizes_are_equal_objects(left: Callable[[Dim, Dim], Dim], right: Callable[[Dim, Dim], Dim]) -> None:
    t, s = sym("T"), sym("S")
    assert left(t, s) == right(t, s) and hash(left(t, s)) == hash(right(t, s))
