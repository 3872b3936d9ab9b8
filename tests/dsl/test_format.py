"""``moec fmt``: one form for each text, whatever its spaces; nothing but spaces changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from command import moec
from golden_plugin import Golden
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moec.diagnostics import Refusal
from moec.frontend.dsl import parse_moe
from moec.frontend.dsl.format import format_text
from moec.frontend.dsl.split import GRAMMAR
from moec.ir.compare import modules_equal

ROOT = Path(__file__).parents[2]
TEXTS = [p.read_text() for p in sorted((ROOT / "examples").glob("*.moe"))]
TEXTS += [p.read_text().split("==== expected")[0] for p in sorted((Path(__file__).parent / "language").glob("*.txt"))]
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def test_formats_everything(golden: Golden) -> None:
    golden(format_text(golden.text, "everything.moe"))


def parts(text: str) -> list[str]:
    """The tokens and comments of a text, without spaces; lines that hold something end in a newline."""
    found: list[str] = []
    for line in text.split("\n"):
        tokens = [str(t) for t in GRAMMAR.lex(line)]
        end = max((t.end_pos or 0 for t in GRAMMAR.lex(line)), default=0)
        comment = line[end:].strip()
        if tokens or comment:
            found += [*tokens, comment, "\n"]
    return found


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_only_spaces_change_and_a_second_run_changes_nothing(text: str) -> None:
    once = format_text(text)
    assert format_text(once) == once
    assert parts(once) == parts(text)
    assert modules_equal(parse_moe(once), parse_moe(text))
    assert all(line == line.rstrip() for line in once.split("\n")) and "\n\n\n" not in once and "\t" not in once


def shaken(text: str, rng: random.Random) -> str:
    """``text`` with other spaces between its tokens, before its comments and around its blank lines."""
    lines = []
    for line in text.split("\n"):
        shaken_line, at = "", 0
        for token in GRAMMAR.lex(line):
            gap = line[at : token.start_pos]
            wanted = rng.choice(["", " ", "   ", "\t"]) or gap[:1]
            shaken_line += wanted + str(token)
            at = token.end_pos or 0
        rest = line[at:].lstrip()
        lines.append(shaken_line + (rng.choice(["", "  "]) + rest if rest else ""))
        if not line.strip() and rng.random() < 0.5:
            lines.append("  ")
    return "\n".join(lines)


@QUICK
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
def test_the_form_does_not_depend_on_the_spaces_given(text: str, rng: random.Random) -> None:
    assert format_text(shaken(text, rng)) == format_text(text)


@QUICK
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
def test_mutated_texts_are_formatted_or_refused(text: str, rng: random.Random) -> None:
    tokens = list(GRAMMAR.lex(text))
    token = rng.choice(tokens)
    change = rng.choice(["", str(rng.choice(tokens)), "{", "}", "[", "(", "\n", "# "])
    text = text[: token.start_pos] + change + text[token.end_pos :]
    try:
        once = format_text(text)
    except Refusal:
        return
    assert format_text(once) == once and parts(once) == parts(text)


def test_a_text_that_cannot_be_read_is_refused_with_every_error() -> None:
    with pytest.raises(Refusal) as info:
        format_text("x = 1)\ny = $\nz = 1\n")
    assert len(info.value.problems) == 2


def test_the_command(tmp_path: Path) -> None:
    good, bad, broken = (tmp_path / f"{n}.moe" for n in ("good", "bad", "broken"))
    good.write_text("H = 1\n")
    bad.write_text("H=1")
    broken.write_text("H = (\n")
    done = moec("fmt", "--check", good, bad, broken)
    assert done.returncode == 1 and "bad.moe: not in canonical form" in done.stderr and "good" not in done.stderr
    assert "broken.moe:1:5: '(' is not closed" in done.stderr and bad.read_text() == "H=1"
    done = moec("fmt", good, bad)
    assert done.returncode == 0 and done.stdout == f"formatted {bad}\n" and bad.read_text() == "H = 1\n"
    assert moec("fmt", "--check", good, bad).returncode == 0
    assert moec("fmt", tmp_path / "missing.moe").returncode == 1
