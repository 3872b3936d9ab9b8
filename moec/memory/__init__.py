"""Activations that fit: what of a training step is kept, recomputed or swapped, and where buffers lie."""
