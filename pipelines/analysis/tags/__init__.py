"""Tags and attributes: vocabularies, scores that can be compared, and how reliable they are."""
