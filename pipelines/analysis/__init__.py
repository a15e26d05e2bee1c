"""What the analysis of a track finds: rhythm, key, loudness, structure, mood, tags, embedding."""
