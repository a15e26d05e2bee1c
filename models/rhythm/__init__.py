"""Beats, bars and tempo: the beat networks and the decoding of their outputs."""
