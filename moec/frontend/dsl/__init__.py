"""The ``.moe`` language: an engineer writes a layer as it stands in a paper.

::

    dim T in [1, 8192] = 4096              # open, with bounds and the size to tune for
    H = 7680                               # a constant
    input  x: bf16[T, H]
    weight w: bf16[2*H, H] = "mlp.weight"  # the name it has in a file of numbers; its own by default

    fn twice[N, D](x: any[N, D], by: float) -> any[N, D] {
        return x * by
    }

    y = twice(silu(x @ w.T), by = 0.5)
    output y

Every op of the registry is called by name, operands first, then each attribute as ``name = value``; ``**record``
spreads a record of attributes. Operators ``+ - * / % ** @ == != < <= > >= & | ^ ~`` stand between tensors and, where
they make sense, between sizes. ``x.T`` swaps the last two dimensions, ``x[..., a:b, 0]`` slices. A function becomes one
IR function for each set of argument types it is called with.
"""

from moec.frontend.dsl.load import Loaded, load_moe, parse_moe, read_moe, read_moe_text

__all__ = ["Loaded", "load_moe", "parse_moe", "read_moe", "read_moe_text"]
