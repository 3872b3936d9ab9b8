"""Kernels of the vector cores, written with KernelBuilder: elementwise and row work, routing, sorting tokens and back."""
