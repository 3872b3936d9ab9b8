"""Steps on the host, and copies between it and the device.

A value lies on the device unless one of these says otherwise; ``moec.ops.places`` checks that each op finds its
operands where it runs. Host steps and reads have an effect: they run in the order written, and none is dropped.

A read is one op that stops the host (``to_host``), or two: ``read_start`` queues the copy behind what makes the value,
and ``read_wait``, later, stops the host only for what is then left of it. A size that data decides is known to the host
(``bind_size``), or to the device alone (``device_size``): then nobody waits, and buffers have room for the most there
may be.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moec.ir.graph import Node, Value
from moec.ir.symbol import Shape
from moec.ops.registry import Types, op
from moec.ops.shapes import known, same_shape
from moec.ops.tape import Gradients, Tape, no_grad

Array = np.ndarray


def _to_device(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    return [t.to_device(dys[0])]


def _to_host(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    return [t.to_host(dys[0])]


def _same(t: Tape, node: Node, *dys: Value | None) -> Gradients:
    return dys


@op("host(xs...: any, *, fn: fn) -> any")
class Host:
    """The results of the module's function ``fn``, run on the host; they lie there. Sizes that it reads from data are
    known afterwards.
    """

    dtype = "xs"
    cost = "host"
    traits = ("call", "effect")
    place = "host"
    grad = no_grad("a host step has no backward; compute on the device what the loss varies with")

    @staticmethod
    def ref(*xs: Array, fn: str) -> Array:
        raise ValueError(f"the evaluator runs function {fn}, not this reference")


@op("to_host(x: any) -> any")
class ToHost:
    """x on the host. The host waits until the device has made it."""

    dtype = "x"
    shape = staticmethod(same_shape)
    cost = "host"
    traits = ("effect",)
    place = "host"
    grad = staticmethod(_to_device)

    @staticmethod
    def ref(x: Array) -> Array:
        return x


@op("read_start(x: any) -> any")
class ReadStart:
    """x on its way to the host: a copy queued behind what makes x. Nobody waits; only ``read_wait`` takes it."""

    dtype = "x"
    shape = staticmethod(same_shape)
    cost = "copy"
    traits = ("effect",)
    grad = staticmethod(_same)

    @staticmethod
    def ref(x: Array) -> Array:
        return x


@op("read_wait(x: any) -> any")
class ReadWait:
    """What ``read_start`` sent, on the host. The host waits until it has arrived."""

    dtype = "x"
    shape = staticmethod(same_shape)
    cost = "host"
    traits = ("effect",)
    place = "host"
    grad = staticmethod(_to_device)

    @staticmethod
    def ref(x: Array) -> Array:
        return x


@op("to_device(x: any) -> any")
class ToDevice:
    """x on the device: a copy of what the host has, queued behind what the device does already."""

    dtype = "x"
    shape = staticmethod(same_shape)
    cost = "copy"
    host_operands = ("x",)
    grad = staticmethod(_to_host)

    @staticmethod
    def ref(x: Array) -> Array:
        return x


@op("bind_size(x: any, *, value: dim) -> any")
class BindSize:
    """x, one integer on the host, which from here on is the size ``value``: a symbol that stands in shapes."""

    dtype = "x"
    cost = "host"
    traits = ("effect",)
    place = "host"
    binds = "value"
    nondiff = "a size"

    @staticmethod
    def shape(types: Types, attrs: dict[str, Any]) -> list[Shape | None]:
        x = known(types)[0]
        if not x.dtype.is_int or x.shape not in ((), None):
            raise ValueError(f"a size is one integer, not {x}")
        return [()]

    @staticmethod
    def ref(x: Array, *, value: int | None) -> Array:
        return x


@op("device_size(x: any, *, value: dim, at_most: dim) -> any")
class DeviceSize:
    """x, one integer on the device, which from here on is the size ``value``: how many rows are in use of buffers that
    have room for ``at_most``. The host does not learn it; more than ``at_most`` is an error, not a loss.
    """

    dtype = "x"
    cost = "scalar"
    traits = ("effect",)
    binds = "value"
    nondiff = "a size"
    shape = BindSize.shape

    @staticmethod
    def ref(x: Array, *, value: int | None, at_most: int) -> Array:
        if int(x) > at_most:
            raise ValueError(f"{int(x)} rows, and there is room for {at_most}")
        return x
