"""From bytes to samples: decoding in a sandbox, resampling, level."""
