"""Look-ups: who a track is, whether its features are known, and their computation if not."""
