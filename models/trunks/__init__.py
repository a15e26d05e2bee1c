"""Transformer trunks of published checkpoints, and how they run in half precision."""
