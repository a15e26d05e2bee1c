"""Checkpoints on disk: cards, the verified cache, downloads, and readers of other file formats."""
