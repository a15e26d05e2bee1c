"""What operators see of the service: metrics, and whose request or job a log line is about."""
