"""Train the key network."""
