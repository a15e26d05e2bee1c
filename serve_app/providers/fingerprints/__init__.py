"""The local fingerprint index: built in steps, read through memory maps."""
