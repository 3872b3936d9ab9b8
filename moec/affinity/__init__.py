"""Which processor cores serve which NPU: the machine's topology, the plan, and the script that launches with it."""
