"""Times of whole operators in closed form: what an op must move and compute, divided by what the chip can do.

``work`` says what an op is made of; ``elementwise``, ``rows``, ``moves``, ``index`` and ``products`` describe op
families; ``vendor`` and ``layer`` map the vendor's operator names and moec's ops to them; ``predict`` turns a
description into microseconds with the few constants of ``constants``; ``table`` does so for a CSV of measured rows.
The cycle model (``moec.targets.ascend.model``) runs the tile program of a kernel that moec emits; this one answers for
ops that moec has no kernel for, and for the vendor's kernels.
"""
