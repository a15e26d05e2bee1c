"""How commands print: tables, JSON lines, pictures."""
