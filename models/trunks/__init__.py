"""Transformer trunks of published checkpoints."""
