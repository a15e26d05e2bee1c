"""Values: settings, tier, price and model tables, Serve files. Imports nothing of ours."""
