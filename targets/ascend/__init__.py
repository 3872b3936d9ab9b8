"""Ascend NPUs of the dav-c220 architecture: machine figures, instruction costs, the cycle model and the target itself."""
