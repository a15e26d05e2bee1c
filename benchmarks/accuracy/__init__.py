"""Tempo, beats and key against annotations, beside other libraries."""
