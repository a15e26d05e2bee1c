"""`afa train`: training of afa's own networks, one module each."""
