"""Attributes of sounds whose attributes nobody doubts."""
