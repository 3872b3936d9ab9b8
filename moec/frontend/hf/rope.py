"""Rotary frequencies under the ways of stretching them to longer texts that ``rope_scaling`` names.

linear: all frequencies divided by ``factor``. llama3 (Llama 3.1): low ones divided, high ones kept, those between mixed
by wavelength. yarn (Peng et al., arXiv 2309.00071): the same by the number of turns over the original length, and cos
and sin times an attention factor. Formulas as in transformers' ``modeling_rope_utils``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from moec.frontend.hf.values import Values, is_number

Array = np.ndarray

_KNOWN = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
}
"""The ways that are built and what each needs."""

_OPTIONAL = {
    "default": (),
    "linear": (),
    "llama3": (),
    "yarn": ("attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow", "truncate"),
}

_EVERYWHERE = ("rope_theta", "partial_rotary_factor")


@dataclass(frozen=True)
class Rope:
    """``frequencies``: radians a position, one a pair. ``factor`` multiplies cos and sin. ``mscale`` is what MLA
    multiplies its scores by, squared (DeepSeek-V2, V3: ``mscale_all_dim``).
    """

    layout: str
    frequencies: tuple[float, ...]
    factor: float = 1.0
    mscale: float = 1.0

    @property
    def width(self) -> int:
        """Rotated elements of a head."""
        return 2 * len(self.frequencies)


def read_rope(values: Values, head: int) -> Rope:
    """The rotation of heads of width ``head``; problems go to ``values``."""
    record, theta = _record(values)
    layout = values.get("rope_layout")
    if values.said("rope_interleave"):
        layout = "interleaved_to_half" if values.get("rope_interleave") else "half"
    width = _width(values, record, head)
    if not theta:
        values.missing("nothing says 'rope_theta': base of the rotary frequencies", "rope_theta")
    kind = str(record.get("rope_type", record.get("type", "default")))
    where = values.spelling("rope_parameters" if values.said("rope_parameters") else "rope_scaling")
    if kind not in _KNOWN:
        values.wrong(where, f"rope_type '{kind}' is not built", f"known: {', '.join(_KNOWN)}")
        return Rope(str(layout), ())
    _check(values, where, record, kind)
    if theta and theta <= 1:
        values.wrong(values.spelling("rope_theta"), f"the base of the rotary frequencies is {theta}, expected above 1")
    if values.problems or not theta:
        return Rope(str(layout), ())
    plain = float(theta) ** (-np.arange(0, width, 2) / width)
    with np.errstate(all="ignore"):
        frequencies, factor = _stretched(kind, plain, record, float(theta))
    if not (np.abs(frequencies) <= 1e6).all() or not 0 < factor <= 1e6:
        values.wrong(where, f"rope_type '{kind}' gives no frequencies with these numbers")
    mscale = _mscale(record["factor"], record["mscale_all_dim"]) if record.get("mscale_all_dim") else 1.0
    return Rope(str(layout), tuple(frequencies.tolist()), factor, mscale)


def _record(values: Values) -> tuple[Mapping[str, Any], float | None]:
    """The scaling record (empty for none) and the base. What is said twice must be said alike."""
    record, other = values.get("rope_parameters") or {}, values.get("rope_scaling") or {}
    if record and other and _plainly(record) != _plainly(other):
        values.wrong("rope_scaling", "'rope_scaling' and 'rope_parameters' say two things")
    record = record or other
    where = values.spelling("rope_parameters" if values.said("rope_parameters") else "rope_scaling")
    if record.get("type", record.get("rope_type")) != record.get("rope_type", record.get("type")):
        values.wrong(where, f"'{where}': rope_type is '{record['rope_type']}', type '{record['type']}'")
    for name in _EVERYWHERE:
        if values.said(name) and is_number(record.get(name)) and float(record[name]) != values.get(name):
            values.wrong(name, f"'{name}' is {values.get(name)}, but '{where}' says {record[name]}")
    theta = values.get("rope_theta") if values.said("rope_theta") else record.get("rope_theta")
    return record, theta if is_number(theta) else values.get("rope_theta")


def _plainly(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says but the base, its way of stretching by one name."""
    kind = record.get("rope_type", record.get("type", "default"))
    rest = {k: v for k, v in record.items() if v is not None and k not in ("rope_type", "type", *_EVERYWHERE)}
    return {**rest, "rope_type": kind}


def _width(values: Values, record: Mapping[str, Any], head: int) -> int:
    given: Any = record.get("partial_rotary_factor")
    share = float(given if is_number(given) else values.get("partial_rotary_factor"))
    width = values.get("rotary_dim") or int(head * min(share, 2.0))
    if width != int(head * min(share, 2.0)) and (is_number(given) or values.said("partial_rotary_factor")):
        values.wrong(
            values.spelling("rotary_dim"),
            f"rotary_dim says {width} of a head's {head} elements are rotated, partial_rotary_factor {share} of them",
        )
    if width % 2 or not 0 < width <= head:
        name = "rotary_dim" if values.said("rotary_dim") else "partial_rotary_factor"
        values.wrong(values.spelling(name), f"{width} of a head's {head} elements cannot be rotated in pairs")
    return int(width)


def _check(values: Values, where: str, record: Mapping[str, Any], kind: str) -> None:
    """Report fields of the record that are unknown, missing or no positive numbers."""
    needed, known = _KNOWN[kind], {*_EVERYWHERE, *_KNOWN[kind], *_OPTIONAL[kind]}
    for name, value in record.items():
        if value is None or name in ("rope_type", "type"):
            continue
        if name not in known:
            values.wrong(where, f"the field '{name}' of rope_type '{kind}' is not understood")
        elif name == "truncate" and not isinstance(value, bool):
            values.wrong(where, f"'truncate' of rope_type '{kind}' is true or false")
        elif name not in ("truncate", *needed) and not (is_number(value) and value > 0):
            values.wrong(where, f"'{name}' of rope_type '{kind}' is a positive number")
    for name in needed:
        if not (is_number(record.get(name)) and record[name] > 0):
            values.wrong(where, f"rope_type '{kind}' needs a positive number '{name}'")


def _stretched(kind: str, plain: Array, record: Mapping[str, Any], theta: float) -> tuple[Array, float]:
    if kind == "linear":
        return plain / record["factor"], 1.0
    if kind == "llama3":
        return _llama3(plain, record), 1.0
    if kind == "yarn":
        return _yarn(plain, record, theta), _attention_factor(record)
    return plain, 1.0


def _llama3(plain: Array, record: Mapping[str, Any]) -> Array:
    length, low, high = (record[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    turns = length * plain / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return plain * (kept + (1 - kept) / record["factor"])


def _yarn(plain: Array, record: Mapping[str, Any], theta: float) -> Array:
    width = 2 * len(plain)
    length = record["original_max_position_embeddings"]

    def dimension(turns: float) -> float:
        """The (fractional) element whose pair makes that many turns over the original length."""
        return width * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(record.get("beta_fast") or 32), dimension(record.get("beta_slow") or 1)
    if not math.isfinite(low + high):
        return plain * math.nan
    if record.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    if low == high:
        high += 0.001
    kept = 1 - np.clip((np.arange(len(plain)) - low) / (high - low), 0, 1)
    return plain * (kept + (1 - kept) / record["factor"])


def _mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _attention_factor(record: Mapping[str, Any]) -> float:
    if record.get("attention_factor") is not None:
        return float(record["attention_factor"])
    factor, mscale, all_dim = record["factor"], record.get("mscale"), record.get("mscale_all_dim")
    if mscale and all_dim:
        return _mscale(factor, mscale) / _mscale(factor, all_dim)
    return _mscale(factor, 1.0)
