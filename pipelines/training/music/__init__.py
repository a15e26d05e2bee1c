"""Writes the music that networks are trained on: notes, bars and keys, with exact labels."""
