"""Identification: recall, latency, scale, and chromaprint beside it."""
