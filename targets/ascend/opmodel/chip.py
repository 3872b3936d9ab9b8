"""The chip that an operator runs on: a catalogue machine, with clock and core count as a measured row states them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from moec.targets.ascend.machine import Machine, load, machines


@dataclass(frozen=True)
class Chip:
    """Rates in bytes per second, sizes in bytes, clock in MHz; ``aiv`` is 2 x ``aic`` on this architecture."""

    name: str
    aic: int
    aiv: int
    mhz: float
    hbm_rate: float
    hbm_peak: float
    l2_bytes: float
    l2_peak: float
    core_hbm: float
    """Bytes per cycle that one core gets from HBM at most."""
    mac: tuple[tuple[str, float], ...]
    """Multiply-adds per cycle of one cube core by dtype."""
    memory: float
    """Bytes of device memory."""

    def macs(self, dtype: str) -> float:
        """Multiply-adds per cycle; dtypes that the cube does not take are computed as f32."""
        rates = dict(self.mac)
        return rates.get({"i8": "int8", "u8": "int8", "i4": "int4"}.get(dtype, dtype), rates["f32"])


@lru_cache(maxsize=256)
def chip_of(machine: Machine, mhz: float | None = None, aic: int | None = None) -> Chip:
    """``machine`` at its own clock and core count, or at those given."""
    own = machine.cores("aic")
    cores = aic or own
    per_core = machine.cores("aiv") // own
    rates = tuple((d, machine[f"cube.mac.{d}"]) for d in ("int4", "int8", "f16", "bf16", "f32", "hf32"))
    return Chip(
        machine.name, cores, cores * per_core, mhz or machine["clock_mhz"], machine["memory.hbm_rate"],
        machine["memory.hbm_peak"], machine["memory.l2_bytes"], machine["memory.l2_peak"],
        machine["memory.hbm_per_core"], rates, machine["memory.hbm_bytes"],
    )  # fmt: skip


_MODEL = re.compile(r"(910[_-]?93\d\d|910B[1-4](?:C)?)", re.IGNORECASE)
_CORES = re.compile(r"(\d+)\s*AIC\b", re.IGNORECASE)
_MHZ = re.compile(r"(\d+(?:\.\d+)?)\s*(MHz|GHz)", re.IGNORECASE)


def machine_of_class(text: str) -> str | None:
    """The machine that a chip class such as ``910B4-class(20AIC@1650MHz)`` is nearest to; None where it names none."""
    known = machines()
    if text.lower() in known:
        return text.lower()
    found = _MODEL.search(text)
    if found:
        name = "ascend" + found.group(1).lower().replace("-", "_")
        name = name.replace("ascend91093", "ascend910_93")
        name = {
            "ascend910b2c": "ascend910b2",
            "ascend910_9382": "ascend910_9381",
            "ascend910_9392": "ascend910_9391",
        }.get(name, name)
        if name in known:
            return name
    cores, clock = stated(text)
    third = bool(re.search(r"\bA3\b|910C|910_93", text)) and not re.search(r"\bA2\b", text)
    if cores == 20 or (clock is not None and clock <= 1700):
        small = clock is not None and clock <= 1700
        return ("ascend910_9362" if small else "ascend910_9372") if third else "ascend910b4" if small else "ascend910b3"
    if cores in (24, 25) or third or re.search(r"\bA2\b|910B\b", text, re.IGNORECASE):
        fast = clock is not None and clock > 1825
        return ("ascend910_9391" if fast else "ascend910_9381") if third else "ascend910b1" if fast else "ascend910b2"
    return None


GUESSED = "ascend910b2"
"""The machine that stands for a part of this generation that names none."""


def nearest_machine(text: str) -> str | None:
    """A machine for a class like none, where it names a part of this generation in some other way; None otherwise."""
    bare = re.sub(r"[\s_-]", "", text.lower()).removeprefix("ascend").removeprefix("atlas")
    return GUESSED if bare.startswith("910") or re.search(r"800[ti]a2|900a2|a2|a3", bare) else None


def stated(text: str) -> tuple[int | None, float | None]:
    """Cube cores and clock in MHz that a chip class states, None each where it does not."""
    cores, clock = _CORES.search(text), _MHZ.search(text)
    mhz = float(clock.group(1)) * (1000 if clock.group(2).lower() == "ghz" else 1) if clock else None
    return int(cores.group(1)) if cores else None, mhz


def load_class(text: str) -> Chip | None:
    """The chip of a class name at the clock and core count that the name states; None where it is like no machine."""
    name = machine_of_class(text)
    if name is None:
        return None
    cores, mhz = stated(text)
    return chip_of(load(name), mhz, cores)
