"""What happens at more requests than the service can answer."""
