"""Which checkpoint serves which role, and how it is exchanged while the service answers."""
