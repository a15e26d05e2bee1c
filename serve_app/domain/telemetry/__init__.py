"""What operators see of the service: metrics, and which request or job a log line is about."""
