"""Bulk analysis with Ray Data."""
