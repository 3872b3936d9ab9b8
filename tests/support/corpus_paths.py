"""Where the corpus of real exports lies."""

from __future__ import annotations

import os
from pathlib import Path


def corpus_folder() -> Path | None:
    """The folder that ``MOEC_CORPUS`` names, or None."""
    folder = os.environ.get("MOEC_CORPUS")
    return Path(folder) if folder and (Path(folder) / "index.json").is_file() else None
