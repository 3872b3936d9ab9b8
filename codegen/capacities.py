"""What code generation must know of the chip: usable bytes of each on-chip memory, and how many cores there are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capacities:
    """Usable bytes of the on-chip memories of one core, and the number of cube (aic) and vector (aiv) cores.

    Defaults are those of NPU arch 2201 (platform ini 8.1.RC1, CANN asc-devkit docs): UB 192 KiB less 256 bytes and the
    8 KiB that some APIs reserve, L1 512 KiB less 256 bytes, L0A and L0B 64 KiB, L0C 128 KiB, bias table 1 KiB, fixpipe
    parameters 2 KiB; 24 cube and 48 vector cores as on 910B1.
    """

    aic: int = 24
    aiv: int = 48
    ub: int = 192 * 1024 - 256 - 8 * 1024
    l1: int = 512 * 1024 - 256
    l0a: int = 64 * 1024
    l0b: int = 64 * 1024
    l0c: int = 128 * 1024
    bt: int = 1024
    fb: int = 2048

    def bytes_of(self, space: str) -> int:
        """Usable bytes of the space named as in the kernel IR (UB, L1, L0A, L0B, L0C, BT, FB)."""
        return int(getattr(self, space.lower()))

    def cores(self, kind: str) -> int:
        """Cores a kernel of ``kind`` (aic, aiv, mix) may be launched on; a mixed kernel counts cube cores."""
        return self.aiv if kind == "aiv" else self.aic
