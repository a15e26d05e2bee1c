"""One module per benchmark; `afa bench NAME` runs one; results go below `benchmarks/results/`."""
