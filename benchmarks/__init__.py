"""Benchmarks by room; `afa bench NAME` runs one; results go into `benchmarks/results/`."""
