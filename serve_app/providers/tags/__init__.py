"""What the tags of an audio file say of it."""
