"""The `afa` command."""
