"""How slowly bytes may come, from clients and from the hosts of audio: they keep others waiting."""

SLOW_START_S = 10.0
SLOWEST_BYTES_PER_S = 8 * 1024
"""From then on, on average."""
