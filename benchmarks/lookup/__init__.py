"""Look-ups: a cache hit through Serve, the catalog, and credits."""
