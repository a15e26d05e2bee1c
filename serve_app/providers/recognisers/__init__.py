"""Services that recognise recordings, and sources about the releases they are on."""
