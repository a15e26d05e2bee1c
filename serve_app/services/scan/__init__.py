"""Bring files into the library: what is new is analysed once, what is known is followed."""
