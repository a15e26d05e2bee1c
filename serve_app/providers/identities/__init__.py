"""Providers that know tracks by id or name, and the resolver that asks them."""
