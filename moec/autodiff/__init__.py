"""Reverse-mode differentiation of a module into one joint graph: forward, loss hook, backward.

Memory is a property of the graph: every value of forward that backward reads goes through exactly one ``save``.
"""

from moec.autodiff.differentiate import Options, differentiate

__all__ = ["Options", "differentiate"]
