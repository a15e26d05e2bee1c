"""Train the chord network."""
