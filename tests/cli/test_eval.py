"""``moec eval``: outputs against hand-computed ones, what files may hold, and what is refused."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from command import moec, refused

RNG = np.random.default_rng(7)
WEIGHT = RNG.standard_normal((8, 16)).astype(np.float32)


def inputs(tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, and the routing weights and experts that the router gives them, worked out in f64."""
    x = np.random.default_rng(tokens).standard_normal((tokens, 16)).astype(np.float32)
    logits = x.astype(np.float64) @ WEIGHT.astype(np.float64).T
    scores = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    experts = np.argsort(-scores, axis=1, kind="stable")[:, :2]
    top = np.take_along_axis(scores, experts, 1)
    return x, top / top.sum(1, keepdims=True), experts


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Two sizes with expected outputs by number."""
    arrays: dict[str, np.ndarray] = {"router": WEIGHT}
    for case, tokens in (("", 5), ("2", 9)):
        x, weights, experts = inputs(tokens)
        arrays |= {f"in{case}.x": x, f"in{case}.router": WEIGHT}
        arrays |= {f"out{case}.0": weights.astype(np.float32), f"out{case}.1": experts}
    del arrays["router"]
    np.savez(tmp_path / "stored.npz", **arrays)  # type: ignore[arg-type]
    return tmp_path / "stored.npz"


def test_both_sizes_agree(router: Path, stored: Path) -> None:
    done = moec("eval", router, "--inputs", stored, "--expect", stored)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [(r[0], r[1], r[-1]) for r in rows] == [
        ("1", "weights", "yes"),
        ("1", "experts", "yes"),
        ("2", "weights", "yes"),
        ("2", "experts", "yes"),
    ]
    assert all(float(r[2]) < 1e-6 for r in rows)


def test_bfloat16_is_read_as_numpy_stores_it(router: Path, tmp_path: Path) -> None:
    """``numpy.savez`` drops the name of an ml_dtypes dtype: a bf16 comes back as two nameless bytes."""
    text = router.read_text(encoding="utf-8").replace("f32", "bf16")
    router.write_text(text, encoding="utf-8")
    x = inputs(3)[0]
    rounded = {"x": x.astype(ml_dtypes.bfloat16), "router": WEIGHT.astype(ml_dtypes.bfloat16)}
    np.savez(tmp_path / "nameless.npz", **rounded)
    np.savez(tmp_path / "wide.npz", **{k: v.astype(np.float32) for k, v in rounded.items()})
    saved = []
    for name in ("nameless", "wide"):
        out = tmp_path / f"{name}.out.npz"
        done = moec("eval", router, "--inputs", tmp_path / f"{name}.npz", "--save", out)
        assert done.returncode == 0, done.stderr
        with np.load(out) as file:
            saved.append(file["out.weights"].astype(np.float64))
    np.testing.assert_array_equal(*saved)


def test_elements_whose_dtype_is_lost_are_refused(router: Path, tmp_path: Path) -> None:
    x = np.zeros((3, 16), ml_dtypes.float8_e4m3fn)
    np.savez(tmp_path / "bytes.npz", x=x, router=WEIGHT)
    refused(moec("eval", router, "--inputs", tmp_path / "bytes.npz"), 1, "array 'x' has elements of 1 bytes", "float32")


def test_plain_names_save_and_fp64(router: Path, tmp_path: Path) -> None:
    x, weights, _ = inputs(3)
    np.savez(tmp_path / "plain.npz", x=x, router=WEIGHT)
    done = moec("eval", router, "--inputs", tmp_path / "plain.npz", "--fp64", "--save", tmp_path / "y.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "y.npz") as saved:
        assert saved["out.weights"].dtype == np.float64
        np.testing.assert_allclose(saved["out.weights"], weights, rtol=1e-12)


def test_a_wrong_output_exits_3_and_names_it(router: Path, stored: Path, tmp_path: Path) -> None:
    with np.load(stored) as arrays:
        changed = dict(arrays)
    changed["out2.0"] = changed["out2.0"] + np.float32(0.01)
    np.savez(tmp_path / "wrong.npz", **changed)
    done = moec("eval", router, "--inputs", tmp_path / "wrong.npz", "--expect", tmp_path / "wrong.npz")
    refused(done, 3, "case 2", "output 'weights' is off by 0.01", "allowed 0.0001")
    assert "NO" in done.stdout
    loose = moec(
        "eval", router, "--inputs", tmp_path / "wrong.npz", "--expect", tmp_path / "wrong.npz", "--tolerance", "0.1"
    )
    assert loose.returncode == 0


def test_the_record_beside_the_file_gives_tolerance_and_producer(router: Path, stored: Path) -> None:
    with np.load(stored) as arrays:
        changed = dict(arrays)
    changed["ort.0"] = changed["out.0"]
    changed["ort.1"] = changed["out.1"]
    changed["out.0"] = changed["out.0"] + np.float32(5)
    np.savez(stored, **changed)
    index = '[{"name": "stored", "checks": {"tolerance": 0.001, "expected_key": "ort.0"}}]'
    (stored.parent / "index.json").write_text(index, encoding="utf-8")
    done = moec("eval", router, "--inputs", stored, "--expect", stored)
    assert done.returncode == 0, done.stderr
    assert "0.001" in done.stdout


@pytest.mark.parametrize("other", [False, True])
def test_a_size_that_the_record_calls_wrong_is_left_out(other: bool, router: Path, stored: Path) -> None:
    """Torch's outputs for the second size are not expected of a file that is wrong there; another runtime's are."""
    with np.load(stored) as arrays:
        changed = dict(arrays)
    if other:
        changed |= {"ort2.0": changed["out2.0"], "ort2.1": changed["out2.1"]}
    changed["out2.0"] = changed["out2.0"] + np.float32(5)
    np.savez(stored, **changed)
    index = '[{"name": "stored", "checks": {"expected_key": "out.0", "verdict": "match-first-input-only"}}]'
    (stored.parent / "index.json").write_text(index, encoding="utf-8")
    done = moec("eval", router, "--inputs", stored, "--expect", stored)
    assert done.returncode == 0, done.stderr
    assert ("case 2 is left out" in done.stderr) != other
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["1", "1", *(["2", "2"] if other else [])]


def test_every_missing_array_is_named_at_once(router: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", y=np.zeros((2, 16), np.float32), routr=WEIGHT)
    done = moec("eval", router, "--inputs", tmp_path / "in.npz")
    refused(
        done,
        1,
        "2 problems",
        "input 'x' (f32[T, 16]) is missing",
        "weight 'router' is missing",
        "did you mean 'routr'?",
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "No such file"), (b"", "cannot read arrays"), (b"PK\x03\x04 cut short", "cannot read arrays")],
    ids=["absent", "empty", "truncated"],
)
def test_unreadable_arrays_are_refused(router: Path, tmp_path: Path, content: bytes | None, text: str) -> None:
    file = tmp_path / "bad.npz"
    if content is not None:
        file.write_bytes(content)
    refused(moec("eval", router, "--inputs", file), 1, "bad.npz", text, "numpy.savez")


def test_pickled_arrays_are_refused(router: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", x=np.array([{"a": 1}], dtype=object))
    refused(moec("eval", router, "--inputs", tmp_path / "p.npz"), 1, "cannot read arrays")


def test_a_size_that_contradicts_the_inputs_is_refused(router: Path, stored: Path) -> None:
    refused(moec("eval", router, "--inputs", stored, "--set", "T=6"), 1, "--set T=6", "T = 5")


def test_a_shape_that_does_not_fit_is_refused(router: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros((2, 17), np.float32), router=WEIGHT)
    refused(moec("eval", router, "--inputs", tmp_path / "in.npz"), 1, "input 'x' has shape [2, 17]")


def test_a_size_out_of_bounds_is_refused(router: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros((65, 16), np.float32), router=WEIGHT)
    refused(moec("eval", router, "--inputs", tmp_path / "in.npz"), 1, "T = 65", "[1, 64]")


def test_expected_outputs_that_do_not_exist_are_refused(router: Path, tmp_path: Path) -> None:
    x, weights, _ = inputs(3)
    np.savez(tmp_path / "in.npz", x=x, router=WEIGHT)
    np.savez(tmp_path / "out.npz", wieghts=weights)
    done = moec("eval", router, "--inputs", tmp_path / "in.npz", "--expect", tmp_path / "out.npz")
    refused(done, 1, "'wieghts'", "did you mean 'weights'?")
