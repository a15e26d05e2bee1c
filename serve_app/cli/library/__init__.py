"""The commands of the library: scan, link, tag, export."""
