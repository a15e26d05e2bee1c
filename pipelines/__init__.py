"""How bytes become a result: decode, window, batch, merge; usable without any server."""
