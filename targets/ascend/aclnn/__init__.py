"""The vendor's operator library beside moec's kernels: which of a layer's ops it has, and how it is called."""
