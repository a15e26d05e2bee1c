"""From bytes to samples: decoding behind walls, resampling, level."""
