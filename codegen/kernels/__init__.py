"""The tile programs: one function a kernel family, from sizes and dtypes to kernel IR."""
