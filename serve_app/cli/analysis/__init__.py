"""`afa analyze` and `afa embed`: what is heard in files, by the service or in this process."""
