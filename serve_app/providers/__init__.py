"""Who knows tracks: the local catalog, and the outside providers of identities and audio."""
