"""Key, chords and their names."""
