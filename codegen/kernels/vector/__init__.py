"""Kernels of the vector cores, as tile programs: elementwise and row work, routing, sorting tokens and back."""
