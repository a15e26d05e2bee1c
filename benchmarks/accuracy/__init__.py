"""Tempo, beats and key against annotations, compared with other libraries."""
