"""`afa mcp`: the tools, who answers them, and how."""
