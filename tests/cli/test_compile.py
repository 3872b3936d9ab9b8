"""``moec compile``: what it writes, twice the same bytes, all or nothing; and that its checks can fail."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import ROOT, moec, moec_process, refused

import moec as package
from moec import eval as reference
from moec.diagnostics import CheckFailed
from moec.driver import load
from moec.ir.text import parse_module
from moec.passes.base import Context, Pass, Result, register_pass
from moec.witness import Witness

TINY = ROOT / "examples" / "tiny_moe.moe"
FILES = ["ascendc", "ir", "optimized.onnx", "report.html", "schedule.json", "summary.json", "trace.json"]
PROJECT = ["CMakeLists.txt", "README.md", "host", "kernels", "manifest.json", "sites.json"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny block compiled with checks."""
    out = tmp_path_factory.mktemp("compiled") / "tiny"
    done = moec("compile", TINY, "-o", out, "--set", "T=16", "--check")
    assert done.returncode == 0, done.stderr
    (out.parent / "stdout").write_text(done.stdout)
    return out


def tree(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def test_the_artefacts_have_their_names(tiny: Path) -> None:
    assert sorted(f.name for f in tiny.iterdir()) == FILES
    assert [f.name for f in sorted((tiny / "ascendc").iterdir()) if f.name != "weights.bin"] == PROJECT
    summary = json.loads((tiny / "summary.json").read_text())
    passes = ["import", *(p["pass"].split("{")[0] for p in summary["passes"])]
    texts = sorted(f.name for f in (tiny / "ir").glob("*.mir"))
    assert texts == [f"{i:02d}_{name}.mir" for i, name in enumerate(passes)]


def test_without_a_folder_it_tells_the_same_and_writes_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = moec("compile", TINY, "--set", "T=16", "--check")
    told = (tiny.parent / "stdout").read_text().splitlines()[:-1]
    assert done.stdout.splitlines() == [*told, "nothing written: -o DIR writes it"] and not list(tmp_path.iterdir())


def test_the_summary_says_what_happened(tiny: Path) -> None:
    summary = json.loads((tiny / "summary.json").read_text())
    assert summary["moec"] == package.__version__
    assert summary["input"] == {"file": "tiny_moe.moe", "kind": "moe"}
    assert summary["target"]["name"] == "ascend910b1"
    assert summary["symbols"] == {"T": {"size": 16, "from": "set", "bounds": [1, 64]}}
    assert summary["lowered"] and not summary["not_lowered"]
    schedule = json.loads((tiny / "schedule.json").read_text())
    assert [k["kernel"] for k in schedule["kernels"]] == [k["kernel"] for k in summary["kernels"]]
    assert summary["launches"] == len(summary["kernels"]) > 4
    assert summary["total"]["us"] == pytest.approx(sum(k["us"] for k in summary["kernels"]), abs=1e-2)
    assert all(k["us"] >= k["floor_us"] and k["bound"] for k in summary["kernels"])
    assert {c["after"] for c in summary["checks"]} == {p["pass"].split("{")[0] for p in summary["passes"]}


def test_the_table_shows_every_kernel_and_the_total(tiny: Path) -> None:
    text = (tiny.parent / "stdout").read_text()
    for kernel in json.loads((tiny / "summary.json").read_text())["kernels"]:
        assert kernel["kernel"] in text
    assert "total" in text and "T=16" in text and "report.html" in text


def test_the_texts_read_back_and_evaluate_alike(tiny: Path) -> None:
    texts = sorted((tiny / "ir").glob("*.mir"))
    witness = Witness.of(load(texts[0]), None)
    for text in texts[1:]:
        witness.check(load(text), text.name)


def test_the_exported_model_agrees_in_onnxruntime(tiny: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(tiny / "optimized.onnx", providers=["CPUExecutionProvider"])
    module = load(TINY)
    witness = Witness.of(module, None)
    case = witness.cases[-1]
    expected = reference.run(module, case.inputs, witness.weights)
    arrays = case.inputs | witness.weights
    outputs = session.run(None, {i.name: arrays[i.name] for i in session.get_inputs()})
    for value, actual in zip(session.get_outputs(), outputs, strict=True):
        np.testing.assert_allclose(actual, expected[value.name], rtol=1e-4, atol=1e-5)


def test_the_trace_and_the_schedule_agree(tiny: Path) -> None:
    schedule = json.loads((tiny / "schedule.json").read_text())
    events = json.loads((tiny / "trace.json").read_text())["traceEvents"]
    device = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert [(e["name"], e["ts"]) for e in device] == [(k["kernel"], k["start_us"]) for k in schedule["kernels"]]


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    trees = []
    for seed in ("1", "2"):
        out = tmp_path / seed / "out"
        done = moec_process("compile", TINY, "-o", out, env={"PYTHONHASHSEED": seed})
        assert done.returncode == 0, done.stderr
        trees.append(tree(out))
    assert list(trees[0]) == list(trees[1])
    assert [name for name in trees[0] if trees[0][name] != trees[1][name]] == []


def test_print_after_gives_ir_that_reads_back(tmp_path: Path) -> None:
    done = moec("compile", TINY, "-o", tmp_path / "out", "--print-after", "expand-moe")
    assert done.returncode == 0, done.stderr
    text = done.stdout.split("# after expand-moe\n")[1].split("\n}\n")[0] + "\n}\n"
    assert any(n.op == "grouped_matmul" for n in parse_module(text).nodes())


def test_an_earlier_output_is_replaced_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert moec("compile", TINY, "-o", out).returncode == 0
    (out / "stale.txt").write_text("old")
    assert moec("compile", TINY, "-o", out).returncode == 0
    assert sorted(f.name for f in out.iterdir()) == FILES
    assert sorted(f.name for f in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize("name", ["summary.json", "notes.txt"])
def test_a_folder_that_is_not_moecs_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text('{"not": "ours"}')
    before = tree(tmp_path)
    refused(moec("compile", TINY, "-o", tmp_path / "mine"), 1, "mine", "did not write")
    assert tree(tmp_path) == before


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(moec("compile", TINY, "-o", tmp_path / "file"), 1, "no folder")
    refused(moec("compile", TINY, "-o", tmp_path / "file" / "out"), 1, "cannot write the output")
    assert (tmp_path / "file").read_text() == "x"


def test_a_failure_halfway_leaves_the_earlier_output_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "deep" / "out"
    assert moec("compile", TINY, "-o", out).returncode == 0
    before = tree(tmp_path)

    def broken(*_: object) -> str:
        raise RuntimeError("disk on fire")

    monkeypatch.setattr("moec.report.html.report", broken)
    done = moec("compile", TINY, "-o", out)
    assert done.returncode == 1 and "disk on fire" in done.stderr and "Traceback" not in done.stderr
    assert tree(tmp_path) == before
    assert [f.name for f in (tmp_path / "deep").iterdir()] == ["out"]
    assert moec("compile", TINY, "-o", tmp_path / "new" / "er" / "out").returncode == 1
    assert not (tmp_path / "new").exists()


@register_pass
class Spoil(Pass):
    """Negates the first output: a pass that is wrong on purpose."""

    name = "test-spoil"

    def run(self, module: package.ir.graph.Module, context: Context) -> Result:  # type: ignore[name-defined]
        from moec.ops.build import Builder

        graph = module.main
        outputs = list(graph.outputs)
        outputs[0] = Builder(graph).neg(outputs[0])
        graph.set_outputs(outputs, list(graph.output_names))
        return Result(changed=True)


def test_check_notices_a_wrong_pass_and_names_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert moec("compile", TINY, "-o", out, "--passes", "canonicalise,test-spoil,expand-moe").returncode == 0
    done = moec(
        "compile", TINY, "-o", tmp_path / "checked", "--passes", "canonicalise,test-spoil,expand-moe", "--check"
    )
    refused(done, 3, "test-spoil", "'y'", "is off by")
    assert not (tmp_path / "checked").exists()


def test_check_notices_stored_outputs_that_the_import_does_not_give(tmp_path: Path) -> None:
    name = "qwen3_moe_moe_dynamo_batched_mm_dyn_op21"
    for suffix in (".onnx", ".npz"):
        (tmp_path / (name + suffix)).write_bytes((ROOT / "tests" / "data" / (name + suffix)).read_bytes())
    with np.load(tmp_path / f"{name}.npz") as stored:
        arrays = dict(stored)
    arrays["out2.0"] = arrays["out2.0"] * np.float32(1.01)
    np.savez(tmp_path / f"{name}.npz", **arrays)
    done = moec("compile", tmp_path / f"{name}.onnx", "-o", tmp_path / "out", "--check")
    refused(done, 3, "import against", f"{name}.npz", "case 2")


def test_the_library_compiles_a_module_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = package.compile(package.load(TINY), set={"T": 8})
    assert done.schedule is not None and done.schedule.sizes == {"T": 8}
    assert done.summary["symbols"]["T"]["size"] == 8
    assert list(tmp_path.iterdir()) == []


def test_the_library_raises_what_the_command_prints() -> None:
    with pytest.raises(CheckFailed, match="test-spoil"):
        package.compile(TINY, passes=[Spoil()], check=True)
