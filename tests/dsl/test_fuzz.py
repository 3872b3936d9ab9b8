"""Whatever the text, the layer language gives a verified module or a Refusal: no other exception, hang or crash."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moec.diagnostics import Refusal
from moec.frontend.dsl import load_moe, parse_moe
from moec.frontend.dsl.split import GRAMMAR
from moec.ops.verify import verify

ROOT = Path(__file__).parents[2]
TEXTS = [p.read_text() for p in sorted((ROOT / "examples").glob("*.moe"))]
TEXTS += [
    p.read_text().split("==== expected")[0]
    for folder in ("language", "errors")
    for p in sorted((Path(__file__).parent / folder).glob("*.txt"))
]
PIECES = sorted({str(t) for text in TEXTS for t in GRAMMAR.lex(text)})
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def takes_or_refuses(text: str) -> bool:
    """Whether the text is taken; a problem of a refusal must say where it is."""
    try:
        verify(parse_moe(text, "fuzz.moe"))
        return True
    except Refusal as refusal:
        assert all(p.what and p.where.line > 0 for p in refusal.problems)
        return False


@FUZZ
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    takes_or_refuses(text)


@FUZZ
@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_any_words(words: list[str]) -> None:
    takes_or_refuses(" ".join(words))


@FUZZ
@given(st.sampled_from(TEXTS), st.floats(0, 1))
def test_truncated(text: str, where: float) -> None:
    takes_or_refuses(text[: int(len(text) * where)])


@FUZZ
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False), st.integers(1, 4))
def test_mutated_words(text: str, rng: random.Random, times: int) -> None:
    tokens = list(GRAMMAR.lex(text))
    for _ in range(times):
        token = rng.choice(tokens)
        change = rng.choice(["", str(token) * 2, rng.choice(PIECES), str(token)[::-1]])
        text = text[: token.start_pos] + change + text[token.end_pos :]
        tokens = list(GRAMMAR.lex(text)) or tokens
    takes_or_refuses(text)


@FUZZ
@given(st.binary(max_size=300))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "f.moe"
    path.write_bytes(data)
    try:
        load_moe(path)
    except Refusal:
        return


def test_the_samples_are_not_all_refused() -> None:
    assert sum(map(takes_or_refuses, TEXTS)) > len(TEXTS) // 2


def chain(first: str, step: str, count: int) -> str:
    """``first`` and then ``step`` for 1..count-1, with ``{i}`` and ``{j}`` = i - 1 filled in."""
    return first + "".join(step.format(i=i, j=i - 1) for i in range(1, count))


X = "input x: f32[4]\n"
HOSTILE = {
    "minus": X + "output y = " + "-" * 5000 + "x",
    "brackets": "output y = " + "(" * 20000 + "x",
    "blocks": "fn f() {" * 5000,
    "closers": "}" * 5000,
    "members": "input x: f32[4, 4]\noutput y = x" + ".T" * 5000,
    "power": "a = 2" + " ** 2" * 5000,
    "call chain": X + chain("fn f0(a) { return a }\n", "fn f{i}(a) {{ return f{j}(a) }}\n", 500) + "output y = f499(x)",
    "growing size": chain("dim T in [1, 9]\na0 = T\n", "a{i} = a{j} * (a{j} + 1)\n", 60),
    "growing number": chain("a0 = 10\n", "a{i} = a{j} * a{j}\n", 60),
    "growing text": chain("dim T in [1, 9]\na0 = T\n", "a{i} = min(a{j} // 3, 7) + max(a{j}, {i})\n", 60),
    "many types": X
    + chain("fn f0(a) { return a }\n", "fn f{i}(a) {{ return f{j}(a) + f{j}(concat(a, a, axis = 0))[:4] }}\n", 30)
    + "output y = f29(x)",
    "loops": X
    + "y = x\n"
    + "".join(f"for k{n} in 0:100 {{\n" for n in range(7))
    + "y = y + k0\n"
    + "}\n" * 7
    + "output y",
    "empty loop": X + "for i in 0:1000000000000 {\n}\noutput x",
    "loops in loops": X + "for i in 0:9 {\n" * 5000 + "output x",
    "host steps": X + "host {\n" * 5000,
    "layers of layers": X
    + "layer f0(a) {\nweight w: f32[4]\nreturn a * w\n}\n"
    + chain("", 'layer f{i}(a) {{ return f{j}["a"](f{j}["b"](a)) }}\n', 40)
    + "output y = f39(x)",
    "many layers": X
    + "layer f(a) {\nweight w: f32[4]\nreturn a * w\n}\n"
    + 'y = f["a", 9999](f["b", 9999](f["c", 9999](x)))\noutput y',
    "layer subscripts": X + "y = x" + "[0](x)" * 5000,
    "huge list": "a = [" + "1, " * 20000 + "1",
    "null": X + "\0\noutput x",
    "surrogate": "output y = \ud800",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    assert not takes_or_refuses(HOSTILE[name])


def test_long_chains_and_files_are_taken() -> None:
    assert takes_or_refuses("input x: f32[4]\noutput y = x" + " + x" * 3000)
    assert takes_or_refuses("input x: f32[4]\noutput y = " + "silu(" * 60 + "x" + ")" * 60)
    assert takes_or_refuses("input x: f32[4]\n" + "x1 = x + 1\n" * 2000 + "output y = x1")


@pytest.mark.parametrize("path", ["missing.moe", ".", "a\0b.moe"])
def test_unreadable_paths(tmp_path: Path, path: str) -> None:
    with pytest.raises(Refusal, match="cannot read"):
        load_moe(tmp_path / path)


def test_not_utf8_and_too_large(tmp_path: Path) -> None:
    path = tmp_path / "a.moe"
    path.write_bytes(b"output \xff")
    with pytest.raises(Refusal, match="UTF-8"):
        load_moe(path)
    with path.open("wb") as file:
        file.truncate(1 << 25)
    with pytest.raises(Refusal, match="32768 KiB"):
        load_moe(path)
