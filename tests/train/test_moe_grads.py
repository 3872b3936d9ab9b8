"""Gradients of the ops of a MoE block against central differences in f64, over router variants, sizes and seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from grad_cases import ACTIVATIONS, COUNTS, ROUTERS, permutation, routing
from op_gradients import check_gradients, feeds_of, gradient_module

from moec.eval import run
from moec.ir.types import BF16, F16, F32, I32, I64, DType, TensorType
from moec.ops import OPS

Array = np.ndarray


def chosen_weights(logits: Array, experts: Array, a: dict[str, Any]) -> Array:
    """Routing weights of experts that are given: written apart from the op, one token and choice at a time."""
    out = np.zeros(experts.shape)
    for t in range(logits.shape[0]):
        over = list(range(logits.shape[1])) if a["score_order"] == "before_topk" else [int(e) for e in experts[t]]
        for k, e in enumerate(experts[t]):
            if a["score"] == "softmax":
                out[t, k] = 1 / sum(np.exp(logits[t, j] - logits[t, e]) for j in over)
            else:
                out[t, k] = 1 / (1 + np.exp(-logits[t, e]))
        if a["renormalize"]:
            out[t] = out[t] / (sum(out[t]) + a["renormalize_eps"])
    return out * float(a["scale"])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("router", ROUTERS)
def test_routers(router: str, seed: int) -> None:
    attrs, biased = ROUTERS[router]
    rng = np.random.default_rng(seed)
    logits, bias = rng.standard_normal((5, 8)), rng.standard_normal(8) if biased else None
    found = check_gradients("gating", [logits, bias], attrs, seed, skip=[1])["g0"]
    if attrs["score_order"] == "after_topk":
        others = np.ones(logits.shape, bool)
        np.put_along_axis(others, OPS["gating"].ref(logits, bias, **attrs)[1].astype(int), False, 1)
        assert not found[others].any()


@pytest.mark.parametrize("router", ROUTERS)
def test_ties_are_differentiated_with_the_choice_that_was_made(router: str) -> None:
    """Logits of three values only; the differences keep the experts, for a tie has no derivative of its own."""
    attrs, biased = ROUTERS[router]
    logits = np.random.default_rng(7).integers(-1, 2, (6, 8)).astype(np.float64)
    bias = np.zeros(8) if biased else None
    experts = OPS["gating"].ref(logits, bias, **attrs)[1]

    def held(logits: Array, bias: Array | None = None, **_: Any) -> Array:
        return chosen_weights(logits, experts, attrs)

    check_gradients("gating", [logits, bias], attrs, reference=held, skip=[1])


@pytest.mark.parametrize(("tokens", "experts", "top_k"), [(1, 1, 1), (1, 5, 1), (3, 1, 1), (7, 3, 3), (2, 9, 5)])
@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_router_sizes(score: str, tokens: int, experts: int, top_k: int) -> None:
    logits = np.random.default_rng(1).standard_normal((tokens, experts))
    check_gradients("gating", [logits], routing(score, top_k=top_k, renormalize=True, renormalize_eps=1e-3))


def test_a_bias_steers_the_choice_and_gets_no_gradient() -> None:
    logits, bias = np.zeros((2, 4)), np.array([0.0, 3.0, 0.0, 2.0])
    module = gradient_module("gating", [logits, bias], routing(top_k=2), only=[0])
    assert [n.op for n in module.main if n.op.endswith("_grad")] == ["gating_grad"]
    grad = OPS["gating"].grad
    assert grad is not None
    with pytest.raises(AssertionError, match="a wanted gradient is missing"):
        gradient_module("gating", [logits, bias], routing(top_k=2))


@pytest.mark.parametrize("score_dtype", [BF16, F16], ids=str)
def test_rounded_scores_pass_the_gradient_on(score_dtype: DType) -> None:
    """Scores held in 16 bit: the gradient is that of unrounded ones but for the sum that they are divided by."""
    logits = np.random.default_rng(3).standard_normal((6, 8)).astype(np.float32)
    dw = np.random.default_rng(4).standard_normal((6, 3)).astype(np.float32)
    attrs = routing("sigmoid", renormalize=True, score_dtype=score_dtype)
    experts = OPS["gating"].ref(logits, None, **attrs)[1]
    got = OPS["gating_grad"].ref(logits, None, experts, dw, **attrs)
    exact = OPS["gating_grad"].ref(logits.astype(np.float64), None, experts, dw.astype(np.float64), **attrs)
    error = np.abs(got - exact).max() / np.abs(exact).max()
    assert 1e-6 < error < 2.0 ** -(8 if score_dtype is BF16 else 11) * 4


@pytest.mark.parametrize("form", ACTIVATIONS)
def test_activations(form: str) -> None:
    attrs = ACTIVATIONS[form]
    for shape in ((5, 6), (2, 3, 4)):
        check_gradients("swiglu", [np.random.default_rng(0).standard_normal(shape)], attrs)


def test_an_activation_at_its_limits_and_of_a_silent_relu() -> None:
    """A clamp passes the gradient at its limit and not beyond; relu's is 0 at 0; infinities do not make NaN."""
    attrs = {"activation": "identity", "glu": "chunked", "alpha": 1.0, "limit": 2.0, "up_offset": 0.0}
    h, dy = np.array([[2.0, 3.0, -3.0, 1.0, -2.0, 2.5]]), np.ones((1, 3))
    np.testing.assert_array_equal(OPS["swiglu_grad"].ref(h, dy, **attrs), [[1.0, 0.0, 2.0, 2.0, 2.0, 0.0]])
    relu = {"activation": "relu", "glu": "none", "alpha": 1.0, "limit": None, "up_offset": 0.0}
    got = OPS["swiglu_grad"].ref(np.array([[0.0, -0.0, 1.0]]), np.ones((1, 3)), **relu)
    np.testing.assert_array_equal(got, [[0.0, 0.0, 1.0]])
    silu = relu | {"activation": "silu"}
    got = OPS["swiglu_grad"].ref(np.array([[-80.0, 80.0]], np.float32), np.ones((1, 2), np.float32), **silu)
    np.testing.assert_allclose(got, [[0.0, 1.0]], atol=1e-30)


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("load", COUNTS)
def test_grouped_products(load: str, bias: bool, transpose: bool) -> None:
    counts = np.array(COUNTS[load], np.int32)
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((counts.size, 3, 5))
    rows = rng.standard_normal((counts.sum(), 5 if transpose else 3))
    added = rng.standard_normal((counts.size, 3 if transpose else 5)) if bias else None
    found = check_gradients("grouped_matmul", [rows, weight, counts, added], {"transpose_weight": transpose})
    for gradient in [found["g1"], *([found["g3"]] if bias else [])]:
        assert not gradient[counts == 0].any()
        assert all(g.any() for g in gradient[counts > 0])


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("load", COUNTS)
def test_grouped_products_of_gathered_rows(load: str, transpose: bool) -> None:
    """As of the rows laid out; a row that is gathered twice gets both gradients, one that is not gets zeros."""
    counts = np.array(COUNTS[load], np.int32)
    rng = np.random.default_rng(0)
    weight, source = rng.standard_normal((counts.size, 3, 5)), rng.integers(0, 4, counts.sum()).astype(np.int32)
    rows, attrs = rng.standard_normal((5, 5 if transpose else 3)), {"transpose_weight": transpose}
    given = [rows, weight, counts, None, source]
    found = check_gradients("grouped_matmul", given, attrs)
    assert not found["g0"][4].any()
    made, laid_out = (
        OPS["grouped_matmul"].ref(*given, **attrs),
        OPS["grouped_matmul"].ref(rows[source], *given[1:3], **attrs),
    )
    np.testing.assert_array_equal(made, laid_out)


def test_indices_of_rows_are_checked() -> None:
    given = [np.ones((4, 2)), np.ones((1, 3, 2)), np.array([2])]
    for op, operands in (
        ("grouped_matmul", [*given, None]),
        ("grouped_matmul_dw", [np.ones((2, 3)), given[0], given[2]]),
    ):
        for wrong in ([0, 4], [-1, 0]):
            with pytest.raises(ValueError, match="there are 4 rows"):
                OPS[op].ref(*operands, np.array(wrong, np.int32))


def test_weight_gradients_in_f32_of_16_bit_products() -> None:
    """The gradient of a bf16 weight wanted in f32 is not rounded on the way."""
    rng = np.random.default_rng(0)
    counts = np.array([3, 0, 4], np.int32)
    given: list[Array | None] = [
        rng.standard_normal((7, 5)),
        rng.standard_normal((3, 4, 5)),
        counts,
        rng.standard_normal((3, 4)),
    ]
    module = gradient_module("grouped_matmul", given, {}, BF16, only=[1, 3], wide=F32)
    feeds = feeds_of(module, given, rng)
    got, exact = run(module, feeds), run(module, feeds, fp64=True)
    for name in ("g1", "g3"):
        assert got[name].dtype == np.float32
        np.testing.assert_allclose(got[name], exact[name], rtol=1e-5, atol=1e-5)
        assert np.abs(got[name] - got[name].astype(BF16.carrier).astype(np.float32)).max() > 1e-3


SIZES = [(1, 1, 1, 1), (1, 3, 4, 2), (5, 1, 3, 7), (6, 2, 4, 3)]


@pytest.mark.parametrize(("tokens", "k", "experts", "hidden"), SIZES)
def test_permute_and_unpermute(tokens: int, k: int, experts: int, hidden: int) -> None:
    rng = np.random.default_rng(0)
    choice, counts, positions = permutation(rng, tokens, k, experts)
    rows, weights = rng.standard_normal((tokens * k, hidden)), rng.standard_normal((tokens, k))
    check_gradients("permute", [rng.standard_normal((tokens, hidden)), choice, counts], {})
    check_gradients("unpermute", [rows, positions, weights], {})
    check_gradients("unpermute", [rows, positions, None], {})


def test_rows_are_read_only_where_the_weights_want_a_gradient() -> None:
    """Rows that nobody reads are not saved."""
    rng = np.random.default_rng(0)
    _, _, positions = permutation(rng, 4, 2, 3)
    given: list[Array | None] = [rng.standard_normal((8, 5)), positions, rng.standard_normal((4, 2))]
    for only, read in (([0], False), ([2], True), ([0, 2], True)):
        (node,) = [n for n in gradient_module("unpermute", given, {}, only=only).main if n.op == "unpermute_grad"]
        assert (node.operands[1] is not None) == read


@pytest.mark.parametrize("layout", ["half", "interleaved", "interleaved_to_half", "half_to_interleaved"])
@pytest.mark.parametrize("whole", [False, True], ids=["half tables", "whole tables"])
@pytest.mark.parametrize("rotary", [4, 6])
def test_rope(layout: str, whole: bool, rotary: int) -> None:
    """Tables that are no cosines, so that each one's gradient and place counts; kept elements where R is 4."""
    rng = np.random.default_rng(rotary)
    width, attrs = rotary if whole else rotary // 2, {"rotary_dim": rotary, "layout": layout}
    x = rng.standard_normal((2, 3, 4, 6))
    for lead in ((4,), (2, 1, 4)):
        check_gradients("rope", [x, *(rng.standard_normal((*lead, width)) for _ in range(2))], attrs)


@pytest.mark.parametrize("only", range(3))
def test_rope_gives_what_is_wanted(only: int) -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape) for shape in ((2, 4, 6), (4, 3), (4, 3))]
    check_gradients("rope", given, {"rotary_dim": 6, "layout": "half"}, skip=[i for i in range(3) if i != only])


def test_half_to_interleaved_undoes_interleaved_to_half() -> None:
    rng = np.random.default_rng(0)
    x, angle = rng.standard_normal((3, 8)), rng.standard_normal((3, 3))
    there = OPS["rope"].ref(x, np.cos(angle), np.sin(angle), rotary_dim=6, layout="interleaved_to_half")
    back = OPS["rope"].ref(there, np.cos(angle), -np.sin(angle), rotary_dim=6, layout="half_to_interleaved")
    np.testing.assert_allclose(back, x, atol=1e-14)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4), (1, 1)])
def test_norms(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, weight, bias = rng.standard_normal(shape), rng.standard_normal(shape[-1]), rng.standard_normal(shape[-1])
    check_gradients("rms_norm", [x, weight], {"eps": 1e-2})
    check_gradients("rms_norm", [x, None], {"eps": 1e-2})
    check_gradients("layer_norm", [x, weight, bias], {"eps": 1e-2, "axis": len(shape) - 1})
    check_gradients("layer_norm", [x, None, bias], {"eps": 1e-2, "axis": len(shape) - 1})
    check_gradients("layer_norm", [x, rng.standard_normal(shape[1:]), None], {"eps": 1e-2, "axis": 1})


@pytest.mark.parametrize("ignore", [None, -100, 2])
def test_cross_entropy(ignore: int | None) -> None:
    rng = np.random.default_rng(0)
    labels = np.array([[0, 2, 5], [2, 1, -100 if ignore == -100 else 3]], np.int32)
    found = check_gradients("cross_entropy", [rng.standard_normal((2, 3, 6)), labels], {"ignore": ignore})["g0"]
    for at in np.ndindex(labels.shape):
        assert found[at].any() == (labels[at] != ignore)


CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "rms_norm": ("rms_norm", lambda r: [r.standard_normal((4, 6)), r.standard_normal(6)], {"eps": 1e-5}),
    "layer_norm": (
        "layer_norm",
        lambda r: [r.standard_normal((4, 6)), r.standard_normal(6), r.standard_normal(6)],
        {"eps": 1e-5, "axis": 1},
    ),
    "swiglu": ("swiglu", lambda r: [r.standard_normal((4, 6))], ACTIVATIONS["silu, chunked"]),
    "gating": ("gating", lambda r: [r.standard_normal((4, 8))], routing("sigmoid", renormalize=True)),
    "unpermute": (
        "unpermute",
        lambda r: [r.standard_normal((8, 5)), permutation(r, 4, 2, 3)[2], r.standard_normal((4, 2))],
        {},
    ),
    "grouped_matmul": (
        "grouped_matmul",
        lambda r: [r.standard_normal((7, 5)), r.standard_normal((2, 3, 5)), np.array([3, 4], np.int32)],
        {},
    ),
    "cross_entropy": (
        "cross_entropy",
        lambda r: [r.standard_normal((3, 6)), np.array([0, 5, 2], np.int32)],
        {"ignore": None},
    ),
}


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_16_bit_gradients_are_rounded_once(case: str, dtype: DType) -> None:
    """Half a unit in the last place of each element, and of a few f32 roundings of the largest."""
    op, operands, attrs = CASES[case]
    rng = np.random.default_rng(0)
    given = operands(rng)
    module = gradient_module(op, given, attrs, dtype)
    feeds = feeds_of(module, given, rng)
    got, exact = run(module, feeds), run(module, feeds, fp64=True)
    for name, gradient in got.items():
        if name[0] == "g":
            assert gradient.dtype == dtype.carrier
            wanted = exact[name]
            slack = 2.0 ** -(11 if dtype is F16 else 8) * np.abs(wanted) + 2.0**-20 * np.abs(wanted).max()
            assert (np.abs(gradient.astype(np.float64) - wanted) <= slack).all(), name


@pytest.mark.parametrize(
    ("op", "types", "attrs", "reason"),
    [
        (
            "grouped_matmul",
            [TensorType(F32, (7, 3)), TensorType(F32, (2, 3, 5)), TensorType(I32, (2,))],
            {"transpose_weight": True},
            "expected 5 columns",
        ),
        (
            "grouped_matmul",
            [TensorType(F32, (7, 3)), TensorType(F32, (2, 3, 5)), TensorType(I32, (2,)), TensorType(F32, (2, 3))],
            {"transpose_weight": False},
            "expected 5 columns",
        ),
        (
            "grouped_matmul",
            [
                *(TensorType(F32, s) for s in ((7, 5), (2, 3, 5))),
                TensorType(I32, (2,)),
                None,
                TensorType(I64, (4,)),
            ],
            {"transpose_weight": True},
            "expected i32",
        ),
        (
            "grouped_matmul_dw",
            [TensorType(F32, (7, 5)), TensorType(F32, (6, 3)), TensorType(I32, (2,))],
            {},
            "as many of each",
        ),
        ("swiglu_grad", [TensorType(F32, (4, 6)), TensorType(F32, (4, 6))], ACTIVATIONS["silu, chunked"], "width of 6"),
        (
            "unpermute_grad",
            [TensorType(F32, (4, 6)), TensorType(F32, (8, 6)), TensorType(I32, (4, 2))],
            {},
            "there are no weights",
        ),
        (
            "unpermute_grad",
            [TensorType(F32, (4, 6)), TensorType(F32, (7, 6)), TensorType(I32, (4, 2)), TensorType(F32, (4, 2))],
            {},
            "expected 8 of them",
        ),
        (
            "gating_grad",
            [TensorType(F32, (4, 8)), None, TensorType(I32, (4, 2)), TensorType(F32, (4, 2))],
            routing(),
            "expected 3 a token",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(op: str, types: list[Any], attrs: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        OPS[op].infer(types, attrs)
