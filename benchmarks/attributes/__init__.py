"""Attributes of sounds whose attributes are beyond doubt."""
