"""What Serve adds to a request."""
