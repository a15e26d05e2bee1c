"""Learn the projection of afa's own embedding from music without labels."""
