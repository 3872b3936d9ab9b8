"""Running the command line: in this process (quick), or as a user does in one of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
PLAIN = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}


def moec(*arguments: str | Path) -> CompletedProcess[str]:
    """Run ``moec`` with ``arguments`` in this process; no terminal, 100 columns."""
    from moec.cli import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    command = ["moec", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", command),
        mock.patch.dict(os.environ, PLAIN),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return CompletedProcess(command, code, out.getvalue(), err.getvalue())


def moec_process(*arguments: str | Path, env: Mapping[str, str] | None = None) -> CompletedProcess[str]:
    """Run ``python -m moec`` with ``arguments`` in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | PLAIN | dict(env or {})
    command = [sys.executable, "-m", "moec", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def refused(done: CompletedProcess[str], code: int, *texts: str) -> None:
    """Assert that a command ended with ``code``, said each of ``texts`` on stderr, and showed no traceback."""
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr, done.stderr
    for text in texts:
        assert text in done.stderr, f"{text!r} not in:\n{done.stderr}"
