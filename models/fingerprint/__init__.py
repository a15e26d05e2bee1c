"""Fingerprints: landmarks of a sound, their hashes, and the sketch of a clip."""
