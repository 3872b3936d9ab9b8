"""Lowering: which kernel computes which op of the layer IR. One file per op family; ``lower_module`` runs them."""

from moec.codegen.lower.base import RULES, Lowering, lower_module, lowering

__all__ = ["RULES", "Lowering", "lower_module", "lowering"]
