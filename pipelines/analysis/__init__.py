"""What is said of a track: rhythm, key, loudness, structure, mood, tags, embedding."""
