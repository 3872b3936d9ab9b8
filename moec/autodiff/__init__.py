"""Reverse-mode differentiation of a module into one joint graph: forward, loss hook, backward.

Memory is a property of the graph: every value of forward that backward reads goes through exactly one ``save``.
"""

from moec.autodiff.differentiate import PLAIN, differentiate
from moec.autodiff.memory import Saved, saved_values
from moec.autodiff.sides import backward_nodes
from moec.autodiff.targets import Options

__all__ = ["PLAIN", "Options", "Saved", "backward_nodes", "differentiate", "saved_values"]
