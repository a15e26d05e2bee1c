"""Checkpoints: checked against their cards, compiled, and run as windowed models."""
