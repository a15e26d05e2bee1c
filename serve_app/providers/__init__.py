"""Sources about tracks: the local catalog, and outside providers of identities and audio."""
