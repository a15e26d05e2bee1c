"""`afa train`: the networks of afa's own, a module each."""
