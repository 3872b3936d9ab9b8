"""One-dimensional depthwise convolution, as short-convolution layers use it, by shifted products."""

from __future__ import annotations

from moec.frontend.onnx.context import Op
from moec.frontend.onnx.errors import NoForm
from moec.frontend.onnx.table import onnx_op
from moec.ir.graph import Value
from moec.ir.symbol import Dim


def depthwise(op: Op, x: Value, kernel: Value, bias: Value | None, stride: int, dilation: int) -> Value:
    """y[b, c, i] = sum over j of kernel[c, 0, j] * x[b, c, stride i + dilation j] (+ bias[c]), without padding."""
    _, channels, length = x.type.dims
    taps = kernel.type.dims[2]
    if not isinstance(taps, int) or kernel.type.dims[0] != channels or kernel.type.dims[1] != 1:
        raise NoForm(f"a kernel {kernel.type} over {channels} channels is not depthwise")
    count: Dim = (length - dilation * (taps - 1) - 1) // stride + 1
    total: Value | None = None
    for j in range(taps):
        start = dilation * j
        part = op.emit("slice", x, axis=2, start=start, stop=start + stride * (count - 1) + 1, step=stride)
        tap = op.emit("reshape", op.emit("slice", kernel, axis=2, start=j, stop=j + 1, step=1), shape=(1, channels, 1))
        part = op.emit("mul", part, tap)
        total = part if total is None else op.emit("add", total, part)
    if total is None:
        raise NoForm("a kernel without taps")
    return total if bias is None else op.emit("add", total, op.emit("reshape", bias, shape=(1, channels, 1)))


@onnx_op("Conv", first=1, last=22)
def _conv(op: Op) -> Value:
    x, kernel = op.value(0), op.value(1)
    if x.type.rank != 3 or op.attr("group", 1) != x.type.dims[1]:
        raise NoForm(f"only depthwise convolution in one dimension is supported, got {x.type} by {kernel.type}")
    if op.attr("auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET", "VALID", b"VALID"):
        raise NoForm(f"auto_pad {op.attr('auto_pad', '')} is not supported")
    before, after = op.attr("pads", [0, 0])
    if before or after:
        x = op.emit("pad", x, before=(0, 0, before), after=(0, 0, after), value=0.0)
    bias = op.value(2) if op.has(2) else None
    return depthwise(op, x, kernel, bias, op.attr("strides", [1])[0], op.attr("dilations", [1])[0])


@onnx_op("CausalConvWithState", domain="com.microsoft", last=1)
def _causal_conv(op: Op) -> list[Value]:
    """Each output sees its own and the kernel's width - 1 earlier inputs; before the first stands the state."""
    if op.attr("ndim", 1) != 1 or op.attr("state_window", 0):
        raise NoForm("only one dimension without a state window is supported")
    activation = op.attr("activation", "none")
    kind = activation.decode() if isinstance(activation, bytes) else activation
    if kind not in ("none", "silu", "swish"):
        raise NoForm(f"activation '{kind}' is not supported")
    x, kernel = op.value(0), op.value(1)
    length = x.type.dims[2]
    past = kernel.type.dims[2] - 1
    if op.has(3):
        x = op.emit("concat", op.value(3), x, axis=2)
    else:
        x = op.emit("pad", x, before=(0, 0, past), after=(0, 0, 0), value=0.0)
    y = depthwise(op, x, kernel, op.value(2) if op.has(2) else None, 1, 1)
    state = op.emit("slice", x, axis=2, start=length, stop=length + past, step=1)
    return [op.emit("silu", y) if kind != "none" else y, state]
