"""Train the network that finds its track's landmarks in a damaged clip."""
