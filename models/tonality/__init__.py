"""Key, chords and tuning."""
