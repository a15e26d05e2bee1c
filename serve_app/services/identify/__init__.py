"""Identification of recordings: earlier answers, the cascade of recognisers, enrichment."""
