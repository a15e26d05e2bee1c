"""Queries for identification: made next to the decoder, as plain data that crosses processes."""
