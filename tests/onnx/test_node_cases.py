"""The official node cases of the onnx package, through import and evaluation.

A case passes when every output has the stored dtype, shape and numbers: floats within the case's own tolerance or twice
the dtype's epsilon, whichever is looser (a case computed step by step in bf16 cannot tell a better result).
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from moec.eval import run
from moec.frontend.onnx import import_model

SKIPPED = {} if find_spec("PIL") else {"test_image_decoder": "the reference evaluator decodes image files with Pillow"}
"""Cases that cannot run here, by the beginning of their names, and why."""

RANDOM = ("test_bernoulli",)
"""Cases whose numbers are random by definition: every output is 0 or 1 of the stored dtype and shape."""


def cases() -> dict[str, list[TestCase]]:
    """The cases by operator family: the third part of their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    families: dict[str, list[TestCase]] = {}
    for case in found:
        if not case.name.startswith(tuple(SKIPPED)):
            families.setdefault(case.name.split("_")[1], []).append(case)
    return families


FAMILIES = cases()


def plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def tolerance(dtype: np.dtype, given: float) -> float:
    try:
        return max(given, 2 * float(ml_dtypes.finfo(dtype).eps))
    except ValueError:
        return given


def compare(actual: Any, expected: Any, case: TestCase) -> None:
    """AssertionError where they are not the same."""
    if expected is None or isinstance(expected, (list, tuple)):
        assert (actual is None) == (expected is None)
        for a, e in zip(actual or (), expected or (), strict=True):
            compare(a, e, case)
        return
    assert np.asarray(actual).dtype == expected.dtype
    if case.name.startswith(RANDOM):
        assert actual.shape == expected.shape and np.isin(actual, (0, 1)).all()
        return
    if expected.dtype.kind in "fVc":
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        rtol = tolerance(expected.dtype, case.rtol)
        np.testing.assert_allclose(
            np.asarray(actual, wide), np.asarray(expected, wide), rtol=rtol, atol=max(case.atol, 1e-7)
        )
    else:
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_official_node_cases(family: str) -> None:
    failed = []
    for case in FAMILIES[family]:
        module = import_model(case.model, case.name)
        names = [v.name for v in case.model.graph.input]
        for inputs, outputs in case.data_sets:
            try:
                got = run(module, {n: plain(v) for n, v in zip(names, inputs, strict=False)})
                for actual, expected in zip(got.values(), outputs, strict=True):
                    compare(actual, plain(expected), case)
            except Exception as error:  # every kind of failure of a case is a failure of the test
                failed.append(f"{case.name}: {type(error).__name__} {str(error)[:200]}")
    assert not failed, "\n".join(failed)
