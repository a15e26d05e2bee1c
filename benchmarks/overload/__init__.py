"""What happens with more requests than the service can answer."""
