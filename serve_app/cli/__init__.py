"""The `afa` command."""

from serve_app.local import ending as ending  # first: what ends the process has to be called last
