"""The overhead that Serve adds to a request."""
