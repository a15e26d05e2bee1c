"""Who recognises recordings, and what is known of the releases they are on."""
