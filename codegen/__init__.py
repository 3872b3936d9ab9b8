"""Kernel IR, tiling, lowering, synchronisation and emission: from the layer IR to AscendC projects. Imports no
target."""
