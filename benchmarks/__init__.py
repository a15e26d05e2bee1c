"""Benchmarks by room; `afa bench NAME` runs one; results go below `benchmarks/results/`."""
