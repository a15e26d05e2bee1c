"""Outgoing requests: guarded addresses, limits, time-outs, typed bodies."""
