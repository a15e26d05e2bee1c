"""A whole afa on one machine: its Redis, its Ray, its service."""
