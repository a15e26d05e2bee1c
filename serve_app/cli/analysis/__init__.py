"""`afa analyze` and `afa embed`: analysis of files, by the service or in this process."""
