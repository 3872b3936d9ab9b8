"""Sizes that data decides: nonzero and ranges on the CPU model, the host binding what the device counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_moves import module, values
from vector_run import ORDERS, Layer, numbers

TEXT = """symbol T in [0, 1000000]
symbol N in [0, 1000000]
symbol M in [0, 1000000]
symbol R in [0, 1000000]
func main(%x: f32[T, 3], %b: bool[T], %s: i64[], %l: i64[], %d: i64[])
    -> (a: i64[2, N], b: i64[1, M], r: i64[R], g: f32[M, 3]) {
  %1 = nonzero(%x) {count = N} : i64[2, N]
  %2 = nonzero(%b) {count = M} : i64[1, M]
  %3 = range(%s, %l, %d) {count = R} : i64[R]
  %4 = reshape(%2) {shape = [M]} : i64[M]
  %5 = gather(%x, %4) {axis = 0} : f32[M, 3]
  return %1, %2, %3, %5
}
"""


def _inputs(rng: np.random.Generator, t: int, range_: tuple[int, int, int]) -> dict[str, np.ndarray]:
    ends = {n: np.array(v) for n, v in zip("sld", range_, strict=True)}
    x = numbers(rng, (t, 3), "f32") * (rng.random((t, 3)) < 0.3)
    return {"x": x.astype(np.float32), "b": values(rng, (t,), "bool") & (t != 5), **ends}


def test_places_and_what_they_name(tmp_path: Path) -> None:
    layer = Layer(TEXT.replace("\n    ", " "), tmp_path)
    rng = np.random.default_rng(0)
    cases = ((1, (0, 10, 3)), (5, (3, 3, 1)), (127, (10, 0, -3)), (9000, (-5, 1000, 1)))
    for i, (t, ends) in enumerate(cases):
        arrays = _inputs(rng, t, ends)
        got, want = layer.run(arrays, MOEC_CPU_ORDER=ORDERS[i % 3]), layer.reference(arrays)
        for name, w in want.items():
            np.testing.assert_array_equal(got[name], w, f"{name} at {t}")


@pytest.mark.slow
def test_every_site_is_noticed(tmp_path: Path) -> None:
    text = module("%x: f32[T]", [("nonzero(%x) {count = N}", "i64[1, N]")], "T in [0, 10000000]; N in [0, 10000000]")
    layer = Layer(text, tmp_path, cores=2)
    rng = np.random.default_rng(1)
    cases = [{"x": np.maximum(numbers(rng, (t,), "f32"), 0)} for t in (3, 4096, 5 * 64 * 4096)]
    cases.insert(2, {"x": np.ones(10 * 7424, np.float32)})
    report = layer.mask(cases)
    print(report)
    assert not report.missed, f"{report}: {report.missed}"
