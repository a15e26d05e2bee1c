"""Windows of many tracks in one forward: batcher, device, steps. Knows no model and no server."""
