"""`afa mcp`: the tools, their backends, and their answers."""
