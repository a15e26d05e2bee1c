"""What operators see: metrics, and which request or job a log line is about."""
