"""Beats, downbeats, tempo and metre: the networks that hear them, and the grid made of that."""
