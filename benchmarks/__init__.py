"""One module per benchmark; `afa bench NAME` runs one and writes its result below `benchmarks/results/`."""
