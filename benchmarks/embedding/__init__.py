"""Measures embeddings."""
