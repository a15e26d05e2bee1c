"""How bytes become a result: decode, window, batch, merge. Works without a server."""
