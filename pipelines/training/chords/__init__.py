"""Training of the chord network."""
