"""Beats, downbeats, tempo and metre: the networks, and the grid made from their outputs."""
