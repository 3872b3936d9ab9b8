"""Help teaches: every command says what it does and shows an example; wrong usage exits 2."""

from __future__ import annotations

import pytest
from command import moec, refused

COMMANDS = ("compile", "eval", "run", "check", "opt", "estimate", "passes", "ops", "instructions", "targets")


def test_help_lists_every_command_and_the_exit_codes() -> None:
    done = moec("--help")
    assert done.returncode == 0
    for text in (
        *COMMANDS,
        "Exit codes: 0 done, 1 the input was refused, 2 wrong usage, 3 a check failed",
        "moec compile",
    ):
        assert text in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_shows_how(command: str) -> None:
    done = moec(command, "--help")
    assert done.returncode == 0
    assert f"Usage: moec {command}" in done.stdout
    if command not in ("passes", "ops", "instructions", "targets"):
        assert "Example" in done.stdout and f"moec {command} " in done.stdout.split("Example")[1]


def test_version() -> None:
    import moec as package

    done = moec("--version")
    assert (done.returncode, done.stdout) == (0, f"moec {package.__version__}\n")


def test_no_arguments_show_help() -> None:
    done = moec()
    assert done.returncode == 2 and "Usage: moec" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("compil",),
        ("compile",),
        ("compile", "x.mir", "-o"),
        ("eval", "x.mir"),
        ("compile", "x.mir", "-o", "d", "--bogus"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2(arguments: tuple[str, ...]) -> None:
    refused(moec(*arguments), 2)


def test_the_nearest_command_is_suggested() -> None:
    refused(moec("compil"), 2, "compile")
