"""The way to the web: guarded addresses, limits, time-outs, typed bodies."""
