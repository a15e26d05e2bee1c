"""Training of the network that tells where a damaged clip hides its track's landmarks."""
