"""The library: the tracks this server knows, kept in one shared place, read from a local view."""
