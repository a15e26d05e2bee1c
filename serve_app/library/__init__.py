"""The library: the tracks this server knows, stored in one shared place, read from a local view."""
