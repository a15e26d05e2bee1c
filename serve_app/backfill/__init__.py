"""Bulk analysis by Ray Data."""
