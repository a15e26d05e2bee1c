"""Puts the parts together: options, stores, services and the data folder."""
