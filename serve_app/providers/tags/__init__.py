"""Reads the tags of an audio file."""
