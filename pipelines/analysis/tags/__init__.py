"""Tags and attributes: vocabularies, scores that can be compared, and how far they hold."""
