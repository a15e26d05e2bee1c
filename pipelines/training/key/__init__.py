"""Training of the key network."""
