"""Tags: vocabularies, scores that can be compared, and the attributes that they imply."""
