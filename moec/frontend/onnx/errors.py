"""What an importer's part may say: that a node is wrong, or only that moec has no form for it."""

from __future__ import annotations


class NoForm(ValueError):
    """The node is valid, but moec's own ops cannot express it: it is kept as an opaque node."""
