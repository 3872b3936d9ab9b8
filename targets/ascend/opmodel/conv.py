"""Convolutions as products: output places x output channels x (input channels x kernel places)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from moec.targets.ascend.opmodel.tensor import Tensor
from moec.targets.ascend.opmodel.work import Gemm, Work

FILTER_FORMATS = ("FRACTAL_Z", "FRACTAL_Z_3D", "HWCN", "OIHW")

HALVES = ("f16", "bf16", "i8")
"""Types that the cube computes in; f32 convolutions run as hf32 unless that is switched off."""


def convolution(ins: Sequence[Tensor], outs: Sequence[Tensor], kind: str = "forward") -> Work:
    """Conv2D (``forward``) and its gradients by ``input`` and ``filter``. ValueError where a feature map is missing."""
    tensors = [t for t in (*ins, *outs) if len(t.shape) >= 4]
    if len(tensors) < 3:
        raise ValueError("a convolution needs input, filter and result of four dimensions")
    weight = _filter(tensors, ins, outs, kind)
    maps = [t for t in tensors if t is not weight][:2]
    small = min(maps, key=pixels) if kind != "forward" else maps[-1]
    places = max(1, pixels(small))
    channels = max(1, small.numel // places)
    inner = max(1, weight.numel // channels)
    dtype = ins[0].dtype if ins[0].dtype in HALVES else "hf32"
    m, n, k = (channels, inner, places) if kind == "filter" else (places, channels, inner)
    gemm = Gemm(1, m, n, k, dtype, 0, 0, outs[0].itemsize if outs else 4, _taps(weight, maps))
    return Work("conv", sum(t.bytes for t in ins), sum(t.bytes for t in outs), gemms=(gemm,), operands=len(ins))


def _filter(tensors: Sequence[Tensor], ins: Sequence[Tensor], outs: Sequence[Tensor], kind: str) -> Tensor:
    """The filter among the operands: by its place, its format, or its size."""
    if kind == "filter" and outs:
        return outs[0]
    if kind == "forward":
        return ins[1]
    return next((t for t in tensors if t.format.upper() in FILTER_FORMATS), min(tensors, key=lambda t: t.numel))


def _taps(weight: Tensor, maps: Sequence[Tensor]) -> float:
    """Kernel places: a loaded input element serves as many of them (the vendor's loads unfold it on chip)."""
    if len(weight.shape) == 4 and weight.shape[-1] != 16:
        return float(max(1, min(prod(weight.shape[2:]), 49)))
    blocks = max((t.shape[1] for t in maps if len(t.shape) == 5), default=1)
    return float(max(1, min(weight.shape[0] // max(1, blocks), 49)))


def pixels(t: Tensor) -> int:
    """Places of a feature map: N x H x W of NCHW, NHWC or NC1HWC0."""
    s = t.shape
    form = t.format.upper()
    if form == "NC1HWC0" and len(s) == 5:
        return s[0] * s[2] * s[3]
    if form == "NHWC":
        return s[0] * s[1] * s[2]
    return s[0] * prod(s[2:4]) if len(s) >= 4 else s[0]
