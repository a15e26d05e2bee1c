"""Who may ask, what it costs, where it runs: the HTTP service on Ray Serve and Redis."""
