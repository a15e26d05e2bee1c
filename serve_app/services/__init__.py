"""What the service does, independent of HTTP, Ray and Redis."""
