"""From fields to the decoder's layers: which layer is dense and which MoE, what each attention sees, what is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moec.diagnostics import Problem
from moec.frontend.hf.blocks import read_attention, read_dense, read_moe
from moec.frontend.hf.spec import Attention, Dense, Layer, Model, Moe
from moec.frontend.hf.values import Values
from moec.ir.types import BF16, F16, F32, F64, DType

DTYPES: dict[str, DType] = {"float32": F32, "bfloat16": BF16, "float16": F16, "float64": F64}
"""Element types by their torch names."""

MAX_LAYERS = 10_000
"""Layers of a model that is still taken."""


def read_model(values: Values) -> Model:
    """The decoder that the fields describe. Refusal with everything that is missing, unknown or contradictory."""
    count = values.get("num_hidden_layers") or 0
    if count > MAX_LAYERS:
        values.wrong("num_hidden_layers", f"{count} layers are more than the {MAX_LAYERS} that are taken")
        count = 0
    hidden = values.get("hidden_size") or 0
    sparse = _sparse(values, count)
    windows = _windows(values, count)
    attention = read_attention(values, hidden)
    dense = read_dense(values) if not all(sparse) else None
    moe = read_moe(values) if any(sparse) or not count else None
    eps, sandwich, residual = (values.get(n) for n in ("rms_norm_eps", "sandwich_norm", "residual_multiplier"))
    dtype = _dtype(values)
    built = _built(values, sparse, windows)
    values.raise_if_wrong()
    assert attention is not None

    def layer(index: int) -> Layer:
        mlp: Dense | Moe | None = moe if sparse[index] else dense
        assert mlp is not None
        seen: Attention = attention(_window(values, windows[index]))
        return Layer(seen, mlp, eps, sandwich, residual)

    kinds: dict[Any, Layer] = {}
    layers = [kinds.setdefault((s, w), layer(i)) for i, (s, w) in enumerate(zip(sparse, windows, strict=True))]
    return Model(hidden, values.get("max_position_embeddings"), dtype, tuple(layers), built)


def _sparse(values: Values, count: int) -> list[bool]:
    """Whether each layer is MoE."""
    types = values.get("mlp_layer_types")
    if types is not None:
        return [t == "sparse" for t in _each(values, "mlp_layer_types", types, ("dense", "sparse"), count)]
    first, freq, step, start, end = (
        values.get(n) or 0
        for n in (
            "first_k_dense_replace",
            "moe_layer_freq",
            "decoder_sparse_step",
            "moe_layer_start_index",
            "moe_layer_end_index",
        )
    )
    dense = set(values.get("mlp_only_layers") or ())
    last = count - 1 if end < 0 else end
    return [
        i >= first and i % freq == 0 and i not in dense and (i + 1) % step == 0 and start <= i <= last
        for i in range(count)
    ]


def _windows(values: Values, count: int) -> list[str]:
    """``full`` or ``sliding`` for each layer, or the name of an attention that is not built."""
    types = values.get("layer_types")
    if types is not None:
        known = ("full_attention", "sliding_attention")
        return [
            t.removesuffix("_attention") if t in known else t for t in _each(values, "layer_types", types, None, count)
        ]
    kinds = values.get("attn_type_list")
    if kinds is not None and any(k != 1 for k in kinds):
        values.wrong("attn_type_list", "only attention of type 1 (full) is built")
    if values.get("sliding_window") is None or not values.get("use_sliding_window"):
        return ["full"] * count
    first: int = values.get("max_window_layers")
    has_window: dict[str, Callable[[int], bool]] = {
        "all": lambda i: True,
        "even": lambda i: i % 2 == 0,
        "from max_window_layers": lambda i: i >= first,
    }
    return ["sliding" if has_window[values.get("windowed_layers")](i) else "full" for i in range(count)]


def _window(values: Values, seen: str) -> int | None:
    return int(values.get("sliding_window")) if seen == "sliding" else None


def _each(values: Values, name: str, types: list[str], known: tuple[str, ...] | None, count: int) -> list[str]:
    """The entries of a list with one entry a layer."""
    spelling = values.spelling(name)
    if len(types) != count:
        values.wrong(spelling, f"'{spelling}' has {len(types)} entries for {count} layers")
    for strange in dict.fromkeys(t for t in types if known is not None and t not in known):
        values.wrong(spelling, f"'{spelling}': '{strange}' is not built", f"known: {', '.join(known or ())}")
    return (list(types) + [known[0] if known else "full_attention"] * count)[:count]


def _built(values: Values, sparse: list[bool], windows: list[str]) -> tuple[int, ...]:
    """The numbers of the layers to build, in order."""
    wanted, count = values.get("moec_layers"), len(sparse)
    if isinstance(wanted, list | tuple):
        outside = [i for i in wanted if i >= count]
        if outside or not wanted:
            values.wrong("moec_layers", f"'moec_layers' names no layers of the {count}: {outside or 'none at all'}")
        numbers = [i for i in wanted if i < count]
    elif wanted == "all":
        numbers = list(range(count))
    else:
        firsts: dict[tuple[bool, str], int] = {}
        for i, kind in enumerate(zip(sparse, windows, strict=True)):
            firsts.setdefault(kind, i)
        numbers = sorted(firsts.values())
    strange = dict.fromkeys(windows[i] for i in numbers if windows[i] not in ("full", "sliding"))
    spelling = values.spelling("layer_types")
    for name in strange:
        layers = [i for i, w in enumerate(windows) if w != name]
        values.wrong(
            spelling,
            f"'{spelling}': layers of type '{name}' are not built",
            f'build others: "moec_layers": {layers[:8]}',
        )
    if any(windows[i] == "sliding" for i in numbers) and values.get("sliding_window") is None:
        values.missing("layers have sliding attention, but nothing says 'sliding_window'", "sliding_window")
    return tuple(numbers)


def _dtype(values: Values) -> DType:
    name = values.get("dtype")
    if name is None:
        values.warnings.append(
            Problem("no torch_dtype: the layer is built in float32", values.where("dtype"), "add it, e.g. bfloat16")
        )
        return F32
    found = DTYPES.get(str(name).removeprefix("torch."))
    if found is None:
        values.wrong(values.spelling("dtype"), f"torch_dtype '{name}' is not built", f"known: {', '.join(DTYPES)}")
        return F32
    return found
