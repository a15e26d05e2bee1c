"""Batching, hand-over of audio between deployments, uploads."""
