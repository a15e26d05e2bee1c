"""Bring files into the library: new ones are analysed once, known ones are followed."""
