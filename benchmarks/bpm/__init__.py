"""Speed from file to tempo, and of decoding."""
