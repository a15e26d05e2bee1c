"""Backups of a whole installation: taken while it runs, and restored."""
