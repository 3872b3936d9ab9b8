"""Reads that stop the host, taken out of a layer.

A framework's dispatcher reads numbers back from the device because a shape, a list of splits or a loop depends on them.
Each such read is replaced by the first of these that fits:

1. *static size*: the number follows from what the host knows (a dropless router's counts sum to T*K);
2. *device counts*: the op that takes the numbers can read them on the device (grouped products);
3. *computed on the device*: the host only computed something for the device from them; the device does that itself;
4. *static upper bound with a device length*, where ``lengths=device`` says so: a size that only kernels use is never
   read; its buffers have room for the most there may be;
5. the lists of ``all_to_all_v``, which its interface takes on the host, as ``counts`` says: ``async`` merges what is
   left into one packed read that starts behind the last producer and is waited for late; ``all-gather`` exchanges
   tokens instead of rows and needs no lists; ``capacity`` sends blocks of a fixed size and refuses an overflow;
   ``keep`` leaves them.
"""

from __future__ import annotations

from moec.diagnostics import Refusal
from moec.ir.graph import Module
from moec.passes.base import Context, Pass, Result, register_pass
from moec.passes.sync_removal_choices import cheapest, choices
from moec.passes.sync_removal_reads import reads_of
from moec.passes.sync_removal_steps import NAME, remove_reads

CHOICES = ("async", "all-gather", "capacity", "keep", "auto")


@register_pass
class SyncRemoval(Pass):
    """Remove device-to-host reads: static sizes, counts read on the device, host computations done by the device, and
    for the lists of all_to_all_v what ``counts`` says.

    ``counts``: ``async`` (one merged read, waited for late), ``all-gather`` (a dispatcher without lists), ``capacity``
    (blocks of ``capacity_factor`` times the average, an overflow is refused), ``keep``, or ``auto``: the one of those
    that the target says takes least time (``capacity`` only where a factor is given). ``all-gather`` has room for
    ``capacity_factor`` times the average number of rows where that is above 0, else for the worst case.

    ``lengths``: ``device`` leaves sizes that only kernels use to the device (a static upper bound with a device-side
    length: memory for the most rows that there may be); ``host`` reads them, late.
    """

    name = NAME
    counts: str = "async"
    capacity_factor: float = 0.0
    lengths: str = "host"

    def run(self, module: Module, context: Context) -> Result:
        if self.counts not in CHOICES:
            raise Refusal(f"sync-removal: counts '{self.counts}' is none of {', '.join(CHOICES)}")
        if self.lengths not in ("host", "device"):
            raise Refusal(f"sync-removal: lengths '{self.lengths}' is none of host, device")
        if self.counts == "capacity" and self.capacity_factor < 1:
            todo = "give capacity_factor=2.0 or the like; below 1 even a balanced load overflows"
            raise Refusal("sync-removal: counts=capacity needs a capacity_factor of 1 or more", todo=todo)
        if not any(reads_of(g) for g in module.functions.values()):
            return Result()
        if self.counts != "auto":
            return remove_reads(module, self.counts, self.capacity_factor, self.lengths)
        if context.target is None:
            raise Refusal(
                "sync-removal: counts=auto needs a target that prices the choices", todo="name one, or a choice"
            )
        found = choices(module, context, self.capacity_factor)
        result = remove_reads(module, cheapest(found), self.capacity_factor, self.lengths)
        for choice in found:
            result.miss(NAME, choice.text())
        return result
