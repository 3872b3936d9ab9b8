"""Host and device on one timeline: what a program's launches, reads and collectives take, and who waits for whom."""
