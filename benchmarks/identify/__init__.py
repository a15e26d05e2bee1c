"""Identification: recall, latency, scale, and chromaprint for comparison."""
