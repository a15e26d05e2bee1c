"""The commands of the library: scan, tag, export."""
