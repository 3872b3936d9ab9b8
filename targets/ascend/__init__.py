"""Ascend NPUs of the dav-c220 architecture: machine figures, instruction costs, the cycle model, the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moec.targets.ascend.target import AscendTarget


def load_target(name: str) -> AscendTarget:
    """The target of that name; code generation is imported only now. Refusal for an unknown one."""
    from moec.targets.ascend.target import load_target as load

    return load(name)
