"""A whole installation at one moment: taken while it runs, and brought back."""
