"""How bytes become a result: decode, window, batch, merge. Imports `models`; usable without any server."""
