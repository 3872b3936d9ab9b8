"""Cycles of one copy over a path, and the bytes that device memory sees.

A copy holds its pipe for max(issue, start + bytes / rate + (rows - 1) * row) cycles, rows without gaps being one; its
data is usable ``latency`` cycles later. Device memory moves whole requests: a row inside one 512-byte line is rounded
up to 128, 256 or 512 bytes; a row that crosses lines and is not aligned to them costs every line it touches (CANN
asc-devkit docs, hardware constraints; measured there: rows of 512 B off alignment reach 51 % by nd2nz). Rows below a
line cost ``short_row`` bytes more each, rows that start inside a request ``off_request`` cycles. ``requests`` counts
requests: several cores that read one line at a time get it in turn. Where single copies were measured to take other
than that, their latency makes up the difference (moec.targets.ascend.cost.lone)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from moec.targets.ascend.cost.lone import TOOTHED, lone_cycles, tooth
from moec.targets.ascend.machine import Machine


@dataclass(frozen=True, slots=True)
class CopyCost:
    """``busy``: cycles on the pipe, ``latency``: cycles from then to usable data, ``moved``: bytes of device memory, in
    ``requests`` requests."""

    busy: int
    latency: int
    moved: int
    requests: int = 0


def request_bytes(offset: int, length: int, line: int = 512, request: int = 128) -> int:
    """Bytes moved for ``length`` bytes from byte ``offset`` on, in whole requests."""
    if length <= 0:
        return 0
    first, last = offset // line, (offset + length - 1) // line
    if first != last:
        return (last - first + 1) * line
    size = request
    while size < length or offset % line // size != (offset + length - 1) % line // size:
        size *= 2
    return size


@lru_cache(maxsize=65536)
def rows_bytes(offset: int, rows: int, length: int, pitch: int, line: int = 512, request: int = 128) -> int:
    """Bytes moved for ``rows`` rows of ``length`` bytes, ``pitch`` bytes apart; ``offset`` matters modulo ``line``."""
    if rows <= 0 or length <= 0:
        return 0
    if pitch == length:
        return request_bytes(offset % line, rows * length, line, request)
    period = line // math.gcd(pitch % line or line, line)
    sizes = [request_bytes((offset + i * pitch) % line, length, line, request) for i in range(min(rows, period))]
    whole, rest = divmod(rows, len(sizes))
    return whole * sum(sizes) + sum(sizes[:rest])


def _off_request(offset: int, rows: int, pitch: int, request: int) -> int:
    """Rows that do not start on a request."""
    period = request // math.gcd(pitch % request or request, request)
    off = [(offset + i * pitch) % request != 0 for i in range(min(rows, period))]
    whole, rest = divmod(rows, len(off))
    return whole * sum(off) + sum(off[:rest])


def copy_cost(
    machine: Machine, path: str, nbytes: int, rows: int = 1, row_bytes: int = 0, pitch: int = 0, offset: int = 0,
    past_l2: bool = False,
) -> CopyCost:  # fmt: skip
    """Cost of ``nbytes`` in ``rows`` rows of ``row_bytes``, ``pitch`` apart on the device-memory side.

    ``path`` is a key of ``paths`` in the machine file; ``offset`` is the device-memory byte offset of the first row;
    ``past_l2``: it is read past the L2, which then does not keep the rest of its lines for the next rows.
    A copy of nothing costs its issue alone.
    """
    get = f"paths.{path}."
    row_bytes, pitch = row_bytes or nbytes, pitch or row_bytes or nbytes
    if pitch == row_bytes:
        rows, row_bytes, pitch = min(rows, 1), nbytes, nbytes
    issue, latency = machine[get + "issue"], int(machine[get + "latency"])
    if nbytes <= 0:
        return CopyCost(math.ceil(issue), latency, 0)
    one_row = max(issue, machine[get + "start"] + nbytes / machine[get + "rate"])
    busy = max(issue, machine[get + "start"] + nbytes / machine[get + "rate"] + (rows - 1) * machine[get + "row"])
    if path == TOOTHED:
        latency += math.ceil(tooth(nbytes))
    elif (alone := lone_cycles(path, nbytes)) is not None:
        latency = max(0, math.ceil(alone - one_row))
    moved = requests = 0
    if "GM" in path:
        line, request = int(machine["memory.line"]), int(machine["memory.request"])
        moved = rows_bytes(offset % line, rows, row_bytes, pitch, line, request)
        requests = rows * -(-(offset % line % request + row_bytes) // line)
        busy += machine[get + "off_request"] * _off_request(offset % line, rows, pitch, request)
        if row_bytes < line:
            moved += math.ceil(rows * (machine[get + "short_row"] + past_l2 * machine["memory.past_row"]))
    return CopyCost(math.ceil(busy), latency, moved, requests)
