"""Look-ups: who a track is, whether its features are known, and computing them if not."""
